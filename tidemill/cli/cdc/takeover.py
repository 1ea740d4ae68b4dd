"""What `cdc cli changefeed query` of a TiCDC says of a changefeed, for Tidemill to take it over. Pure.

It may also be the answer of TiCDC's API (`GET /api/v2/changefeeds/ID`): there the checkpoint is `checkpoint_ts`.
TiCDC shows no secrets: what it hides has to be given again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.config.replica_config import from_json
from tidemill.errors import ConfigError
from tidemill.tso import MAX_TS

_MASKS = ("xxxxx", "******")
_MASK = re.compile(r"(?:[:=@/]|^)(?:xxxxx|\*{6})(?=[@&/?]|$)|(?:%2A){6}", re.IGNORECASE)
STILL_RUNS = ("normal", "warning", "pending", "")
"""States in which TiCDC goes on by itself."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A changefeed of TiCDC. `hidden`: the settings that TiCDC does not show, by their place."""

    changefeed_id: str
    sink_uri: str = field(repr=False)
    replica_config: Mapping[str, Any]
    checkpoint_ts: int
    target_ts: int
    state: str
    hidden: tuple[str, ...]

    @property
    def uri_is_whole(self) -> bool:
        """Whether nothing of the sink URI is hidden."""
        return "sink_uri" not in self.hidden


def read(text: str, name: str) -> TakenOver:
    """Read what TiCDC has printed. `name`: the file, for errors. Raises ConfigError."""
    found = _object(text, name)
    checkpoint = found.get("checkpoint_tso", found.get("checkpoint_ts"))
    if not _is_ts(checkpoint) or not checkpoint:
        raise ConfigError(f"{name}: checkpoint_tso is missing, or not a TSO", hint=_HINT)
    sink_uri, changefeed_id = found.get("sink_uri"), found.get("id")
    if not isinstance(sink_uri, str) or not isinstance(changefeed_id, str):
        raise ConfigError(f"{name}: it has no {'sink_uri' if not isinstance(sink_uri, str) else 'id'}", hint=_HINT)
    config = found.get("config") or {}
    if not isinstance(config, Mapping):
        raise ConfigError(f"{name}: config is not a JSON object", hint=_HINT)
    from_json(config, f"{name}: config")
    target = found.get("target_ts") or 0
    hidden = [*(["sink_uri"] if _MASK.search(sink_uri) else []), *_hidden(config, "config")]
    return TakenOver(
        changefeed_id=changefeed_id,
        sink_uri=sink_uri,
        replica_config=_shown(config),
        checkpoint_ts=checkpoint,
        target_ts=target if _is_ts(target) else 0,
        state=str(found.get("state") or ""),
        hidden=tuple(hidden),
    )


_HINT = "Give what `cdc cli changefeed query --changefeed-id ID` prints, without --simple."


def _object(text: str, name: str) -> dict[str, Any]:
    start = text.find("{")  # TiCDC may print warnings before
    try:
        found, _ = json.JSONDecoder().raw_decode(text, max(start, 0))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: it is not JSON: {error}", hint=_HINT) from None
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: it is not a JSON object", hint=_HINT)
    return found


def _is_ts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TS


def _hidden(value: Any, path: str) -> Iterator[str]:
    """Yield the path of each text that TiCDC hides, whole or in part."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _hidden(below, f"{path}.{name}")
    elif isinstance(value, list):
        for place, below in enumerate(value):
            yield from _hidden(below, f"{path}[{place}]")
    elif isinstance(value, str) and (value in _MASKS or ("://" in value and _MASK.search(value))):
        yield path


def _shown(value: Any) -> Any:
    """Return a value without the texts that TiCDC hides."""
    if isinstance(value, Mapping):
        return {name: _shown(below) for name, below in value.items() if not (isinstance(below, str) and list(_hidden(below, "")))}
    return [_shown(below) for below in value] if isinstance(value, list) else value
