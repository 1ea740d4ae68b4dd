"""What a server's error means: try the transaction again, connect again first, split statements, wait, or give up; which errors say that a
DDL is done. Pure.

Codes are MySQL's, MariaDB's and TiDB's; 2000 to 2999 are the client's own.
"""

from __future__ import annotations

import enum
import re


class Fate(enum.Enum):
    """What follows an error."""

    RETRY = "retry"  # the transaction, over the same connection
    RECONNECT = "reconnect"  # then the transaction again
    SPLIT = "split"  # connect, then the transaction again, in smaller statements and packets
    WAIT = "wait"  # the server takes nothing now: the batch is tried again later
    FAIL = "fail"


_R, _C, _S, _W = Fate.RETRY, Fate.RECONNECT, Fate.SPLIT, Fate.WAIT

FATES: dict[int, Fate] = {
    1020: _R,  # record has changed since last read
    1062: _R,  # duplicate key: what is there is older, or this was written before; the next attempt replaces
    1205: _R,  # lock wait timeout
    1213: _R,  # deadlock
    1412: _R,  # table definition has changed
    1613: _R,  # XA: rolled back
    1614: _R,  # XA: deadlock
    1969: _R,  # MariaDB: max_statement_time
    3101: _R,  # group replication: rolled back at its commit
    8002: _R,  # TiDB: aborted, for a write conflict
    8022: _R,  # TiDB: commit failed, may be tried again
    8028: _R,  # TiDB: the schema has changed
    9006: _R,  # TiDB: older than the GC's life time
    9007: _R,  # TiDB: write conflict
    1153: _S,  # a packet larger than max_allowed_packet
    2020: _S,
    1037: _W,  # out of memory
    1040: _W,  # too many connections
    1041: _W,  # out of resources
    1047: _W,  # Galera: the node is not ready
    1203: _W,  # too many connections of this user
    1226: _W,  # a limit of this user
    1290: _W,  # read-only server
    1792: _W,  # read-only transaction: tx_read_only is set
    1836: _W,  # read-only mode
    1021: _W,  # disk full
    1114: _W,  # table full
    3168: _W,  # server is not available
    3100: _W,  # a hook of replication failed
    8027: _W,  # TiDB: schema out of date
    9001: _W,  # TiDB: no PD
    9002: _W,  # TiDB: no TiKV
    9003: _W,  # TiKV is busy
    9004: _W,  # TiDB: locks are resolved too slowly
    9005: _W,  # TiDB: region unavailable
    1053: _C,  # server shutdown
    1077: _C,
    1079: _C,
    1080: _C,
    1152: _C,  # aborted connection
    1158: _C,
    1159: _C,
    1160: _C,
    1161: _C,
    1184: _C,
    1317: _C,  # interrupted
    1927: _C,  # MariaDB: killed
    2002: _C,
    2003: _C,
    2006: _C,  # server has gone away
    2013: _C,  # lost connection
    2014: _C,  # out of step
    2027: _C,  # malformed packet
    2055: _C,
    3169: _C,  # MySQL: the session was killed
    4031: _C,  # MySQL: disconnected because of inactivity
    0: _C,  # PyMySQL: the connection is closed
}
"""What is not here is given up, but for errors of a full disk."""

_OF_STORAGE = frozenset({3, 20, 28, 1026, 1030})
"""Errors of files and storage engines, which name the operating system's error in their text."""
_DISK_FULL = re.compile(r"(?:error|errcode|errno):? \"?28\b|no space left|disk (?:is )?full", re.I)

ALREADY_SO = frozenset(
    {
        1007,  # database exists
        1008,  # no such database to drop
        1050,  # table exists
        1051,  # no such table to drop
        1060,  # column exists
        1061,  # index exists
        1068,  # primary key exists
        1091,  # no such column or key to drop
        1176,  # no such index
        1507,  # no such partition to drop
        1517,  # partition exists
        1831,  # index exists
    }
)
"""Errors by which a DDL says that what it wants is so. As in TiCDC the DDL is taken as done."""

NO_COLUMN = 1054
_ADDS = re.compile(r"\b(ADD|CREATE)\b", re.I)

RAN_BEFORE = frozenset(
    {
        1049,  # no such database
        1054,  # no such column: of a RENAME COLUMN, a CHANGE COLUMN
        1146,  # no such table: of a RENAME
        1826,  # foreign key exists
    }
)
"""Further ones, which count only if the DDL may have run: it was begun, and nothing says that it was done."""

HINTS: dict[int, str] = {
    1044: "The user needs rights on the database, and on tidb_cdc, where Tidemill keeps its books.",
    1045: "User or password are wrong.",
    1049: "The database is not there. Create it, then `tidemill changefeed resume`.",
    1054: "The table downstream lacks a column that it has upstream: run the DDL that adds it, then `tidemill changefeed resume`.",
    1142: "The user lacks a right; see docs/sinks/mysql.md.",
    2059: "Set ssl-ca in the URI if the server needs the password itself (PAM, LDAP). If it does not, somebody else answers there.",
    1146: "The table is not there. Make it as it is upstream, then `tidemill changefeed resume`. Or let Tidemill do it: a run with "
    "--snapshot and --create-tables; a changefeed of a server with create-tables = true and `tidemill resync` of each table.",
    1153: "Raise max_allowed_packet of the server above the size of the largest row.",
    8004: "Raise txn-total-size-limit of TiDB, or let the transactions downstream be smaller: max-txn-row, transaction-atomicity=none.",
    8025: "Raise txn-entry-size-limit of TiDB above the size of the largest row.",
    1298: "The server does not know this time zone: load its time zone tables, or give time-zone=+08:00.",
    1364: "The table downstream has a column that rows upstream lack, and it has no default.",
    1406: "The column downstream is narrower than upstream.",
}


def is_already_so(code: int, query: str) -> bool:
    """Return whether an error of a DDL says that it is done. One of a missing column does as in TiCDC, but not if the DDL adds something:
    it would be missing."""
    return code in ALREADY_SO or (code == NO_COLUMN and _ADDS.search(query) is None)


def fate_of(code: int, text: str = "") -> Fate:
    """Return what follows an error."""
    if code in _OF_STORAGE and _DISK_FULL.search(text):
        return Fate.WAIT
    return FATES.get(code, Fate.FAIL)
