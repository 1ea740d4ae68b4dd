"""What a changefeed was created with. Servers share it (`shared.records`); the host has it with the command that starts the changefeed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.config.file import ChangefeedConfig, check_config
from tidemill.config.registry_address import with_registry
from tidemill.config.uri import SinkUri, with_store
from tidemill.statefile import Fields


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """Settings of a changefeed. `config`: the TOML file as a mapping. `created_at`: Unix seconds."""

    changefeed: str
    sink_uri: str = field(repr=False)
    start_ts: int
    created_at: float
    creator_version: str
    cluster_id: str
    target_ts: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    schema_registry: str = field(default="", repr=False)
    tz: str = "UTC"
    skip_rows: tuple[str, ...] = ()
    """Rows that a person leaves out, as `tidemill.rules.skip` names them."""

    def checked(self) -> ChangefeedConfig:
        """Return the configuration. Raises ConfigError."""
        return check_config(self.config)

    def sink_text(self, data_dir: Path) -> str:
        """Return the sink URI with the schema registry and the place of an entry store in it."""
        return with_store(with_registry(self.sink_uri, self.schema_registry or None), str(data_dir.absolute() / "canal"))

    def sink(self, data_dir: Path) -> SinkUri:
        """Return the complete sink URI. Raises ConfigError."""
        return self.checked().sink_uri(self.sink_text(data_dir))

    @classmethod
    def of(cls, found: Fields) -> FeedSettings:
        """Return the settings in a JSON object. Raises FeedBroken."""
        return cls(
            changefeed=found.text("changefeed"),
            sink_uri=found.text("sink_uri"),
            start_ts=found.integer("start_ts"),
            created_at=found.number("created_at"),
            creator_version=found.text("creator_version"),
            cluster_id=found.text("cluster_id"),
            target_ts=found.integer("target_ts", default=0),
            config=found.plain("config"),
            schema_registry=found.text("schema_registry", default=""),
            tz=found.text("tz", default="UTC"),
            skip_rows=tuple(found.texts("skip_rows", optional=True)),
        )
