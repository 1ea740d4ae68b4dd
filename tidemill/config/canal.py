"""canal://: a server for Canal's clients, and its entry store."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from tidemill.config.sinks import Reading, hosts_of
from tidemill.errors import ConfigError, redact

_DESTINATION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class CanalOptions:
    """A server for Canal's clients, and the entry store that it reads."""

    listen: str  # HOST:PORT; empty: only the store is written
    destination: str  # empty: without a server
    store: str  # folder or URL; empty: not given
    start_ts: int | None = None  # of a first subscription
    any_wait: bool = False  # a GET ends with any entry
    age_ms: int | None = None  # of the oldest entries that are kept
    size: int | None = None  # bytes that are kept


def read(uri: Reading) -> dict[str, Any]:
    """Return the fields of a canal:// URI. Raises ConfigError."""
    values = uri.values
    encoding = replace(
        uri.encoding,
        canal_server_id=values["server-id"] or 0,
        canal_member_names=values["enum-set-as-text"],
        output_raw_change_event=True,  # an update of a key is an update for Canal's clients
    )
    return {"encoding": encoding, "split_on_dispatch_key": False, "canal": _options(uri)}


def _options(uri: Reading) -> CanalOptions:
    parts, values, text = uri.parts, uri.values, uri.text
    path, store, host = unquote(parts.path), values["store"] or "", ""
    destination = path.strip("/") if parts.netloc else ""
    if parts.netloc:
        host, *others = hosts_of(parts, text)
        if others or not _DESTINATION.fullmatch(destination):
            raise ConfigError(f"sink URI {redact(text)}: expected canal://HOST:PORT/DESTINATION, or canal:///FOLDER")
    elif not path.strip("/") or store:
        raise ConfigError(f"sink URI {redact(text)}: canal:///FOLDER names the entry store itself, without store=")
    else:
        store = path.rstrip("/")
    any_wait = values["get.wait"] == "any"
    return CanalOptions(host, destination, store, values["start-ts"], any_wait, values["store-age"], values["store-size"])
