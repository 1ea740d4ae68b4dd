"""A message's bytes → events, for every protocol that the consumer supports. Pure.

All events are converted to those of Open Protocol, whose columns have their types.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from tidemill.consumer.canal import open_events
from tidemill.consumer.foreign import foreign_protocol
from tidemill.errors import ConfigError, MalformedMessage
from tidemill.protocols import canal_json
from tidemill.protocols import open as open_protocol
from tidemill.protocols.open.codes import VERSION
from tidemill.protocols.open.decode import Fetch
from tidemill.protocols.open.events import Event


class Protocol(enum.Enum):
    """The protocol of a topic. AUTO decides for each message."""

    AUTO = "auto"
    OPEN = "open-protocol"
    CANAL_JSON = "canal-json"


Read = Callable[[bytes | None, bytes | None], list[Event]]
"""Turns key and value of a message into its events. Raises MalformedMessage."""

_OPEN_VERSION = VERSION.to_bytes(8, "big")
_READABLE = "open-protocol, and canal-json with the TiDB extension"
_WORDS = {"auto": Protocol.AUTO, "open-protocol": Protocol.OPEN, "default": Protocol.OPEN, "canal-json": Protocol.CANAL_JSON}


def parse_protocol(text: str) -> Protocol:
    """Parse a protocol by TiCDC's word for it. Raises ConfigError."""
    found = _WORDS.get(text.lower())
    if found is None:
        raise ConfigError(f"protocol {text!r} cannot be read", hint=f"Use one of {', '.join(p.value for p in Protocol)}.")
    return found


def reader(protocol: Protocol, fetch: Fetch | None = None) -> Read:
    """Return the function that reads messages of a protocol. `fetch` reads the files of claim checks."""

    def read_open(key: bytes | None, value: bytes | None) -> list[Event]:
        return open_protocol.decode(key or b"", value, fetch=fetch)

    def read_canal(key: bytes | None, value: bytes | None) -> list[Event]:
        return open_events(canal_json.decode(value or b"", fetch=fetch))

    def read_any(key: bytes | None, value: bytes | None) -> list[Event]:
        if key is not None and key[:8] == _OPEN_VERSION:
            return read_open(key, value)
        if value is not None and value[:1] == b"{":
            return read_canal(key, value)
        begins = f"its key begins with {(key or b'')[:8].hex() or 'nothing'}, its value with {(value or b'')[:8]!r}"
        raise MalformedMessage(f"it is of no protocol that can be read: {begins}", hint=f"Readable are {_READABLE}.")

    return {Protocol.AUTO: read_any, Protocol.OPEN: read_open, Protocol.CANAL_JSON: read_canal}[protocol]


def read_at(read: Read, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None) -> list[Event]:
    """Read a message. Raises MalformedMessage that names its place, and its protocol if that is not supported."""
    try:
        return read(key, value)
    except MalformedMessage as error:
        message, hint = error.message, error.hint
        if (foreign := foreign_protocol(key, value)) is not None:
            message = f"it is of protocol {foreign}, which is not read here"
            hint = f"Readable are {_READABLE}. Let the changefeed write one of them."
        raise MalformedMessage(f"topic {topic}, partition {partition}, offset {offset}: {message}", hint=hint) from error
