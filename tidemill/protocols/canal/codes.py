"""Numbers of Canal's entries and packets."""

from __future__ import annotations

import enum

from tidemill.protocols.common.ddltypes import DdlKind


class EntryType(enum.IntEnum):
    """`Entry.entryType`. A client of Canal's takes every other number for ROWDATA."""

    TRANSACTIONBEGIN = 1
    ROWDATA = 2
    TRANSACTIONEND = 3
    HEARTBEAT = 4
    GTIDLOG = 5


class EventType(enum.IntEnum):
    """`Header.eventType` and `RowChange.eventType`."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    CREATE = 4
    ALTER = 5
    ERASE = 6
    QUERY = 7
    TRUNCATE = 8
    RENAME = 9
    CINDEX = 10
    DINDEX = 11
    GTID = 12
    XACOMMIT = 13
    XAROLLBACK = 14
    MHEARTBEAT = 15


class PacketType(enum.IntEnum):
    """`Packet.type`. SHUTDOWN, DUMP and HEARTBEAT are in nobody's use."""

    NONE = 0
    HANDSHAKE = 1
    CLIENTAUTHENTICATION = 2
    ACK = 3
    SUBSCRIPTION = 4
    UNSUBSCRIPTION = 5
    GET = 6
    MESSAGES = 7
    CLIENTACK = 8
    SHUTDOWN = 9
    DUMP = 10
    HEARTBEAT = 11
    CLIENTROLLBACK = 12


class Compression(enum.IntEnum):
    """`Packet.compression`. No server compresses and no client expands: a client refuses what is not absent or one of the first two, a
    server does not look at it."""

    COMPATIBLE = 0
    NONE = 1
    ZLIB = 2
    GZIP = 3
    LZF = 4


VERSION = 1
"""Of packets and of headers."""

MYSQL = 2
"""`Header.sourceType`."""

CHARSET = b"UTF-8"
"""`Header.serverenCode`."""

DDL_EVENTS: dict[DdlKind, EventType] = {kind: EventType[kind.name] for kind in DdlKind}
"""The event type of a DDL."""
