"""What `create` and `update` send: the configuration file as TiCDC's JSON, and the flags that go into it.

The models of settings load all protocols, which takes half a second: only commands that have a file or a sink URI import them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.config.file import ChangefeedConfig
    from tidemill.config.uri import SinkUri


def read_config(path: Path | None) -> dict[str, Any]:
    """Return the replica_config of a TOML file; empty for None. The file is checked here, so that an error names it. Raises ConfigError."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"configuration {path} cannot be read: {error.strerror}", hint="Is --config the right path?") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration {path}: {error}") from None
    from tidemill.config.file import parse_config
    from tidemill.config.replica_config import to_json

    parse_config(text, str(path))
    return to_json(tomllib.loads(text))


def checked(replica_config: Mapping[str, Any], sink_uri: str) -> tuple[SinkUri, ChangefeedConfig]:
    """Return sink URI and configuration as the server will read them. Raises ConfigError."""
    from tidemill.config.file import check_config
    from tidemill.config.replica_config import from_json

    config = check_config(from_json(replica_config))
    return config.sink_uri(sink_uri), config


def unmatched_rules(replica_config: Mapping[str, Any], tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return a warning for each rule of the filter that matches none of the cluster's tables, as `Client.verify_tables` lists them."""
    rules = (replica_config.get("filter") or {}).get("rules") or ()
    if not rules:
        return []
    from tidemill.rules.unmatched import unmatched

    names = [(str(one["database_name"]), str(one["table_name"])) for one in tables["all_tables"]]
    return unmatched(rules, names, case_sensitive=bool(replica_config.get("case_sensitive")))


def in_sink(replica_config: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Return a configuration with keys of its table `sink` set. None leaves one as it is."""
    given = {name: value for name, value in values.items() if value is not None}
    return {**replica_config, "sink": {**replica_config.get("sink", {}), **given}} if given else dict(replica_config)


def upstream(pd: str | None, ca: str | None, cert: str | None, key: str | None) -> dict[str, Any]:
    """Return the fields of a request that name a cluster."""
    if not pd:
        return {}
    return {"pd_addrs": pd.split(","), "ca_path": ca or "", "cert_path": cert or "", "key_path": key or ""}
