"""The owner of a sink's folder: one changefeed with one protocol. Both layouts of file:// keep a note of it. Pure."""

from __future__ import annotations

import json

from tidemill import statefile
from tidemill.errors import ConfigError, SinkError
from tidemill.statefile import Kind

MESSAGES_NOTE = "tidemill.json"
"""The note at the root of a folder of messages files. It has their resolved ts too."""
TABLES_NOTE = ".tidemill/owner.json"
"""The note in a folder of tables."""

NOTE = Kind(SinkError, "Restore the file from a copy, or give the changefeed an empty folder.")
"""Files that a sink keeps in its folder."""
_HINT = "Give each its own folder."


def note(feed: str, protocol: str, **more: int) -> bytes:
    """Return the text of a note."""
    return json.dumps({"format": 1, "changefeed": feed, "protocol": protocol, **more}).encode()


def check(text: bytes | None, where: str, feed: str, protocol: str) -> bool:
    """Return whether there is a note. Raises ConfigError for another owner's. A note of an earlier version fits any protocol."""
    if text is None:
        return False
    found = statefile.read(text, f"{where}: the note of its owner", NOTE)
    owner, holds = found.text("changefeed"), found.text("protocol", default=protocol)
    if owner != feed:
        raise ConfigError(f"{where} belongs to changefeed {owner!r}, not {feed!r}", hint=_HINT)
    if holds != protocol:
        raise ConfigError(f"{where} holds what was delivered as {holds}; this is {protocol}", hint=_HINT)
    return True


def check_no_other(text: bytes | None, where: str, protocol: str) -> None:
    """Raise ConfigError if the folder has a note of the other layout. `text` is that note."""
    if text is not None:
        try:
            holds = statefile.read(text, where, NOTE).text("protocol", default="another protocol")
        except SinkError:
            holds = "another protocol"
        raise ConfigError(f"{where} holds what was delivered as {holds}; this is {protocol}", hint=_HINT)
