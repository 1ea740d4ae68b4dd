"""Whose a folder of a sink is: one changefeed's, in one protocol. Both layouts of file:// keep a note of it. Pure."""

from __future__ import annotations

import json
from typing import Any

from tidemill.errors import ConfigError, SinkError

MESSAGES_NOTE = "tidemill.json"
"""At the root of a folder of messages files; has their resolved ts as well."""
TABLES_NOTE = ".tidemill/owner.json"
"""Below the root of a folder of tables."""

_HINT = "Give each its own folder."


def note(feed: str, protocol: str, **more: int) -> bytes:
    """The text of a note."""
    return json.dumps({"format": 1, "changefeed": feed, "protocol": protocol, **more}).encode()


def check(text: bytes | None, where: str, feed: str, protocol: str) -> bool:
    """Is there a note? Raises ConfigError for another's. One of an earlier version names no protocol: any will do."""
    if text is None:
        return False
    try:
        found: Any = json.loads(text)
        owner, holds = found.get("changefeed"), found.get("protocol", protocol)
    except (ValueError, AttributeError) as error:
        raise SinkError(f"{where}: the note of its owner cannot be read: {error}") from None
    if owner != feed:
        raise ConfigError(f"{where} belongs to changefeed {owner!r}, not {feed!r}", hint=_HINT)
    if holds != protocol:
        raise ConfigError(f"{where} holds what was delivered as {holds}; this is {protocol}", hint=_HINT)
    return True


def check_no_other(text: bytes | None, where: str, protocol: str) -> None:
    """`text`: the note of the other layout. Raises ConfigError if there is one."""
    if text is not None:
        try:
            holds = str(json.loads(text).get("protocol", "another protocol"))
        except (ValueError, AttributeError):
            holds = "another protocol"
        raise ConfigError(f"{where} holds what was delivered as {holds}; this is {protocol}", hint=_HINT)
