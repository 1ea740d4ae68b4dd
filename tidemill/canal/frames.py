"""A batch as it is sent, written without copying each entry more than once."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.protocols.canal.codes import PacketType
from tidemill.tidb.codec import encode_uvarint

Bytes = bytes | bytearray | memoryview

_ENTRY = b"\x12"
_BATCH_ID = b"\x08"
_BODY = b"\x18%c\x2a" % PacketType.MESSAGES


_SHORT = [_ENTRY + encode_uvarint(n) for n in range(1 << 14)]


def item_head(size: int) -> bytes:
    """What stands before an entry of that many bytes in MESSAGES."""
    return _SHORT[size] if size < len(_SHORT) else _ENTRY + encode_uvarint(size)


def batch_frame(batch_id: int, items: Sequence[Bytes]) -> list[Bytes]:
    """The frame of MESSAGES, in pieces: type and body, without a version, as Canal sends it. `items`: entries, each behind its head."""
    number = _BATCH_ID + encode_uvarint(batch_id)
    size = len(number) + sum(map(len, items))
    head = _BODY + encode_uvarint(size)
    return [(len(head) + size).to_bytes(4, "big") + head + number, *items]


def messages_frame(batch_id: int, entries: Sequence[Bytes]) -> bytes:
    """The same in one piece, of entries without heads."""
    return b"".join(batch_frame(batch_id, [part for entry in entries for part in (item_head(len(entry)), entry)]))
