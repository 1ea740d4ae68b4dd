"""A message's bytes → events, for every protocol that the consumer reads. Pure.

All events are converted to those of Open Protocol, whose columns have their types. `READERS` has one entry for each protocol. Errors name
other protocols as far as `foreign.py` recognises them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidemill.consumer.canal import open_events
from tidemill.consumer.foreign import foreign_protocol
from tidemill.errors import ConfigError, MalformedMessage
from tidemill.protocols import canal_json, debezium
from tidemill.protocols import open as open_protocol
from tidemill.protocols.all import PROTOCOLS, SPELLINGS
from tidemill.protocols.debezium.opened import open_event
from tidemill.protocols.open.codes import VERSION
from tidemill.protocols.open.decode import Fetch
from tidemill.protocols.open.events import Event
from tidemill.protocols.options import MessageFormat

AUTO = "auto"
"""As --protocol: the protocol is decided for each message."""

Read = Callable[[bytes | None, bytes | None], list[Event]]
"""Turns key and value of a message into its events. Raises MalformedMessage."""

_OPEN_VERSION = VERSION.to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class Reader:
    """How messages of one protocol are read. `recognises`: whether a message, by key and value, looks like one of it."""

    read: Callable[[bytes | None, bytes | None, Fetch | None], list[Event]]
    recognises: Callable[[bytes | None, bytes | None], bool]
    only: str = ""  # which messages of the protocol can be read, if not all


READERS: dict[MessageFormat, Reader] = {
    MessageFormat.OPEN: Reader(
        lambda key, value, fetch: open_protocol.decode(key or b"", value, fetch=fetch),
        lambda key, _: key is not None and key[:8] == _OPEN_VERSION,
    ),
    MessageFormat.CANAL_JSON: Reader(
        lambda _, value, fetch: open_events(canal_json.decode(value or b"", fetch=fetch)),
        lambda _, value: value is not None and value[:1] == b"{",
        only="with the TiDB extension",
    ),
}
"""The protocols that the consumer reads. A message is of the first one that recognises it."""

ONLY_SHOWN: dict[MessageFormat, Reader] = {
    MessageFormat.CANAL_JSON: replace(
        READERS[MessageFormat.CANAL_JSON],
        read=lambda _, value, fetch: open_events(canal_json.decode(value or b"", fetch=fetch), to_show=True),
        only="",
    ),
    MessageFormat.DEBEZIUM: Reader(
        lambda key, value, _: [open_event(debezium.decode(key, value or b""))],
        lambda key, value: foreign_protocol(key, value) == "debezium",
    ),
}
"""Protocols whose messages, or some of them, can be shown, but not written back into tables."""

_READABLE = ", and ".join(f"{PROTOCOLS[protocol].spellings[0]} {one.only}".rstrip() for protocol, one in READERS.items())


def parse_protocol(text: str, *, to_show: bool = False) -> MessageFormat | None:
    """Parse a protocol by TiCDC's word for it; None for `auto`. Raises ConfigError. `to_show`: those that can only be shown, too."""
    if text.lower() == AUTO:
        return None
    spec = SPELLINGS.get(text.lower())
    readers = _readers(to_show=to_show)
    if spec is None or spec.format not in readers:
        words = [AUTO, *(PROTOCOLS[protocol].spellings[0] for protocol in readers)]
        raise ConfigError(f"protocol {text!r} cannot be read", hint=f"Use one of {', '.join(words)}.")
    return MessageFormat(spec.format)


def _readers(*, to_show: bool) -> dict[MessageFormat, Reader]:
    """Return the readers; first those for messages that others would take for theirs."""
    return {MessageFormat.DEBEZIUM: ONLY_SHOWN[MessageFormat.DEBEZIUM], **READERS, **ONLY_SHOWN} if to_show else READERS


def reader(protocol: MessageFormat | None = None, fetch: Fetch | None = None, *, to_show: bool = False) -> Read:
    """Return the function that reads messages of a protocol (None: of whichever one each message is). `fetch` reads the files of claim
    checks. `to_show`: messages are only shown."""
    readers = _readers(to_show=to_show)

    def read_any(key: bytes | None, value: bytes | None) -> list[Event]:
        for one in readers.values():
            if one.recognises(key, value):
                return one.read(key, value, fetch)
        begins = f"its key begins with {(key or b'')[:8].hex() or 'nothing'}, its value with {(value or b'')[:8]!r}"
        raise MalformedMessage(f"it is of no protocol that can be read: {begins}", hint=f"Readable are {_READABLE}.")

    if protocol is None:
        return read_any
    chosen = readers[protocol]
    return lambda key, value: chosen.read(key, value, fetch)


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
