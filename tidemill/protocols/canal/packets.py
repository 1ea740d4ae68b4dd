"""The conversation's packets: bytes ↔ bodies. A frame is a length of four bytes, big-endian, and a packet.

Requests are written as Canal's clients write them and answers as its server does: what a side sets is written, also where it is zero.
Readers take any order of fields and unknown ones. Canal's clients refuse an answer that says it is compressed, and so does
`parse_packet`. Canal's server looks at nothing in a request's head but its type, and so does `parse_request`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tidemill.errors import MalformedMessage
from tidemill.protocols.canal.codes import VERSION, Compression, PacketType
from tidemill.wire import canal_packet_pb2 as pb

_DEFLATED = (Compression.ZLIB, Compression.GZIP)
_ANY_HEADER = zlib.MAX_WBITS | 32
"""zlib's or gzip's, whichever the bytes begin with."""
_Message = TypeVar("_Message", bound=Message)

FRAME_HEAD = 4
MAX_FRAME = 128 << 20
"""Bytes of the largest packet that is waited for."""


class PacketError(MalformedMessage):
    """Bytes that are not a packet, or none that is known: `type` is the packet's, if it got so far."""

    def __init__(self, problem: str, type_: int | None = None) -> None:
        self.type = type_
        super().__init__(f"Canal packet: {problem}", hint="the fault is the sender's")


@dataclass(frozen=True, slots=True)
class Handshake:
    """The server's first packet."""

    seeds: bytes


@dataclass(frozen=True, slots=True)
class ClientAuth:
    """`password` is a token of hex digits (or what the client sends as one). Timeouts are milliseconds; 0: none given."""

    username: str
    password: bytes = field(repr=False, default=b"")
    net_read_timeout: int = 0
    net_write_timeout: int = 0
    destination: str = ""
    client_id: str = ""
    filter: str = ""


@dataclass(frozen=True, slots=True)
class Ack:
    """An answer; error code 0: it worked."""

    error_code: int = 0
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class Subscription:
    destination: str
    client_id: str
    filter: str = ""


@dataclass(frozen=True, slots=True)
class Unsubscription:
    destination: str
    client_id: str
    filter: str = ""


@dataclass(frozen=True, slots=True)
class Get:
    """`timeout` None: absent, which Canal reads as 0. `unit`: 0 ns, 1 us, 2 ms, 3 s, 4 min, 5 h, 6 d."""

    destination: str
    client_id: str
    fetch_size: int
    timeout: int | None = None
    unit: int | None = None
    auto_ack: bool = False


@dataclass(frozen=True, slots=True)
class Messages:
    """A batch of entries; id -1: there is nothing, 0: absent. `version`: whether the packet has one, which Canal leaves out of batches."""

    batch_id: int
    entries: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class ClientAck:
    destination: str
    client_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class ClientRollback:
    """Batch 0: all that are open."""

    destination: str
    client_id: str
    batch_id: int = 0


@dataclass(frozen=True, slots=True)
class Unknown:
    """A packet of a type that has no body here."""

    type: int


Body = Handshake | ClientAuth | Ack | Subscription | Unsubscription | Get | Messages | ClientAck | ClientRollback | Unknown


# Frames


def frame(packet: bytes) -> bytes:
    """A packet as it is sent."""
    return len(packet).to_bytes(FRAME_HEAD, "big") + packet


def frame_length(head: bytes, limit: int = MAX_FRAME) -> int:
    """The packet's length, of the first four bytes. Raises PacketError for one that is negative or above the limit."""
    length = int.from_bytes(head[:FRAME_HEAD], "big", signed=True)
    if len(head) < FRAME_HEAD or not 0 <= length <= limit:
        raise PacketError(f"a frame of {length} bytes; up to {limit} are read")
    return length


def take_frame(buffer: bytes | bytearray | memoryview, at: int = 0, limit: int = MAX_FRAME) -> tuple[bytes, int] | None:
    """The packet whose frame begins at `at`, and where the next begins; None: not all of it is there. Raises PacketError by its head."""
    if len(buffer) - at < FRAME_HEAD:
        return None
    begin = at + FRAME_HEAD
    length = frame_length(bytes(buffer[at:begin]), limit)
    if length > len(buffer) - begin:
        return None
    return bytes(buffer[begin : begin + length]), begin + length


# Reading


def _parsed(kind: type[_Message], data: bytes, type_: int | None = None) -> _Message:
    made = kind()
    try:
        made.ParseFromString(data)
    except DecodeError:
        raise PacketError(f"{len(data)} bytes that cannot be read as {kind.DESCRIPTOR.name}: {data[:16].hex()}…", type_) from None
    return made


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise PacketError(f"{what} {data[:60]!r} is not UTF-8") from None


def parse_packet(data: bytes) -> Body:
    """The body of a packet. Raises PacketError."""
    packet = _parsed(pb.Packet, data)
    if packet.compression not in (Compression.COMPATIBLE, Compression.NONE):
        raise PacketError(f"it is compressed ({packet.compression}), which Canal never does", packet.type)
    return _body(packet.type, packet.body)


def parse_request(data: bytes, limit: int = MAX_FRAME) -> Body:
    """The body of a packet as a server reads it: magic, version and compression are not looked at, whatever they are. A body that really
    is compressed is expanded, up to `limit` bytes. Raises PacketError."""
    packet = _parsed(pb.Packet, data)
    if packet.compression not in _DEFLATED:
        return _body(packet.type, packet.body)
    return _body(packet.type, _expanded(packet.body, packet.type, limit))


def _body(type_: int, data: bytes) -> Body:
    read = _READERS.get(type_)
    return Unknown(type_) if read is None else read(data)


def _expanded(data: bytes, type_: int, limit: int) -> bytes:
    """What was compressed; the bytes themselves where they are no stream of zlib or gzip: clients name a compression and use none."""
    stream = zlib.decompressobj(_ANY_HEADER)
    try:
        found = stream.decompress(data, limit)
    except zlib.error:
        return data
    if not stream.eof and not stream.unconsumed_tail:
        return data
    if not stream.eof:
        raise PacketError(f"its body has more than {limit} bytes when it is expanded", type_)
    return found


def packet_version(data: bytes) -> int | None:
    """The version that a packet names. Clients look at a handshake's. Raises PacketError."""
    packet = _parsed(pb.Packet, data)
    return packet.version if packet.HasField("version") else None


def _auth(data: bytes) -> ClientAuth:
    body = _parsed(pb.ClientAuth, data, PacketType.CLIENTAUTHENTICATION)
    return ClientAuth(
        username=_text(body.username, "username"),
        password=body.password,
        net_read_timeout=body.net_read_timeout,
        net_write_timeout=body.net_write_timeout,
        destination=_text(body.destination, "destination"),
        client_id=_text(body.client_id, "client id"),
        filter=_text(body.filter, "filter"),
    )


def _get(data: bytes) -> Get:
    body = _parsed(pb.Get, data, PacketType.GET)
    return Get(
        destination=_text(body.destination, "destination"),
        client_id=_text(body.client_id, "client id"),
        fetch_size=body.fetch_size,
        timeout=body.timeout if body.HasField("timeout") else None,
        unit=body.unit if body.HasField("unit") else None,
        auto_ack=body.auto_ack,
    )


def _ack(data: bytes) -> Ack:
    body = _parsed(pb.Ack, data, PacketType.ACK)
    return Ack(body.error_code, body.error_message.decode("utf-8", "replace"))


def _messages(data: bytes) -> Messages:
    body = _parsed(pb.Messages, data, PacketType.MESSAGES)
    return Messages(body.batch_id, tuple(body.messages))


def _subscription(data: bytes) -> Subscription:
    body = _parsed(pb.Sub, data, PacketType.SUBSCRIPTION)
    return Subscription(_text(body.destination, "destination"), _text(body.client_id, "client id"), _text(body.filter, "filter"))


def _unsubscription(data: bytes) -> Unsubscription:
    body = _parsed(pb.Unsub, data, PacketType.UNSUBSCRIPTION)
    return Unsubscription(_text(body.destination, "destination"), _text(body.client_id, "client id"), _text(body.filter, "filter"))


def _client_ack(data: bytes) -> ClientAck:
    body = _parsed(pb.ClientAck, data, PacketType.CLIENTACK)
    return ClientAck(_text(body.destination, "destination"), _text(body.client_id, "client id"), body.batch_id)


def _rollback(data: bytes) -> ClientRollback:
    body = _parsed(pb.ClientRollback, data, PacketType.CLIENTROLLBACK)
    return ClientRollback(_text(body.destination, "destination"), _text(body.client_id, "client id"), body.batch_id)


_READERS: dict[int, Callable[[bytes], Body]] = {
    PacketType.HANDSHAKE: lambda data: Handshake(_parsed(pb.Handshake, data, PacketType.HANDSHAKE).seeds),
    PacketType.CLIENTAUTHENTICATION: _auth,
    PacketType.ACK: _ack,
    PacketType.SUBSCRIPTION: _subscription,
    PacketType.UNSUBSCRIPTION: _unsubscription,
    PacketType.GET: _get,
    PacketType.MESSAGES: _messages,
    PacketType.CLIENTACK: _client_ack,
    PacketType.CLIENTROLLBACK: _rollback,
}


# Writing


def _filled(made: _Message, **fields: object) -> bytes:
    """The message with the fields that are not None and not empty; numbers and flags are written also where they are zero."""
    for name, value in fields.items():
        data = value.encode() if isinstance(value, str) else value
        if data is not None and data != b"":
            setattr(made, name, data)
    return made.SerializeToString()


def write_packet(body: Body) -> bytes:
    """The packet of a body, without the frame's length: requests as the Java client writes them, answers as Canal's server does.

    Raises ValueError for `Unknown`.
    """
    match body:
        case Handshake(seeds):
            return _server(PacketType.HANDSHAKE, pb.Handshake(seeds=seeds).SerializeToString())
        case Ack(code, message):
            data = pb.Ack(error_code=code, error_message=message.encode()).SerializeToString() if code else b""
            return _server(PacketType.ACK, data)
        case Messages(batch_id, entries):
            data = pb.Messages(batch_id=batch_id, messages=entries).SerializeToString()
            return _server(PacketType.MESSAGES, data) if not entries else _packet(PacketType.MESSAGES, data)
        case ClientAuth():
            return _packet(PacketType.CLIENTAUTHENTICATION, _written_auth(body))
        case Subscription(destination, client_id, filter_):
            data = _filled(pb.Sub(), destination=destination, client_id=client_id, filter=filter_)
            return _packet(PacketType.SUBSCRIPTION, data)
        case Unsubscription(destination, client_id, filter_):
            data = _filled(pb.Unsub(), destination=destination, client_id=client_id, filter=filter_)
            return _packet(PacketType.UNSUBSCRIPTION, data)
        case Get(destination, client_id, size, timeout, unit, auto_ack):
            ends = {"fetch_size": size or None, "timeout": timeout, "unit": unit, "auto_ack": auto_ack}
            return _packet(PacketType.GET, _filled(pb.Get(), destination=destination, client_id=client_id, **ends))
        case ClientAck(destination, client_id, batch_id):
            data = _filled(pb.ClientAck(), destination=destination, client_id=client_id, batch_id=batch_id or None)
            return _packet(PacketType.CLIENTACK, data)
        case ClientRollback(destination, client_id, batch_id):
            data = _filled(pb.ClientRollback(), destination=destination, client_id=client_id, batch_id=batch_id or None)
            return _packet(PacketType.CLIENTROLLBACK, data)
    raise ValueError(f"a packet of type {body.type} has no body that could be written")


def _written_auth(body: ClientAuth) -> bytes:
    return _filled(
        pb.ClientAuth(),
        username=body.username,
        password=body.password,
        net_read_timeout=body.net_read_timeout or None,
        net_write_timeout=body.net_write_timeout or None,
        destination=body.destination,
        client_id=body.client_id,
        filter=body.filter,
    )


def _packet(kind: PacketType, data: bytes) -> bytes:
    made = pb.Packet(type=kind)
    if data:
        made.body = data
    return made.SerializeToString()


def _server(kind: PacketType, data: bytes) -> bytes:
    """A server's packet names its version; a batch's does not."""
    made = pb.Packet(version=VERSION, type=kind)
    if data:
        made.body = data
    return made.SerializeToString()
