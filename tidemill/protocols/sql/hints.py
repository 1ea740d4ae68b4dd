"""What to do about an error of rows, in the words of the program that meets it: each remedy has to be there in that program. Pure.

Codes are MySQL's, MariaDB's and TiDB's.
"""

from __future__ import annotations

import enum


class Program(enum.Enum):
    """Who writes rows into a database, and how it goes on after an error that it gives up at."""

    CHANGEFEED = "`tidemill changefeed resume` (a replay is started again)"
    DRAINER = "start the Drainer again"
    REPARO = "start Reparo again with the -start-tso that its log names"
    CONSUMER = "start `tidemill consume` again"
    VIEW = "`tidemill view run` again"


_C, _D, _R, _S, _V = Program

COMMON: dict[int, str] = {
    1044: "The user needs rights on the database, and on {books}, where {program} keeps its books.",
    1045: "User or password are wrong.",
    1049: "The database is not there. Create it, then {go_on}.",
    1054: "The table downstream lacks a column that it has upstream: run the DDL that adds it, then {go_on}.",
    1142: "The user lacks a right; see docs/{page}.md.",
    1146: "The table is not there. Make it as it is upstream, then {go_on}.",
    1153: "Raise max_allowed_packet of the server above the size of the largest row.",
    8004: "Raise txn-total-size-limit of TiDB, or let the transactions downstream be smaller{smaller}.",
    8025: "Raise txn-entry-size-limit of TiDB above the size of the largest row.",
    1298: "The server does not know this time zone: load its time zone tables (mysql_tzinfo_to_sql){zone}.",
    1364: "The table downstream has a column that rows upstream lack, and it has no default.",
    1406: "The column downstream is narrower than upstream.",
    2059: "Set ssl-ca if the server needs the password itself (PAM, LDAP). If it does not, somebody else answers there.",
}
_WORDS: dict[Program, dict[str, str]] = {
    _C: {
        "program": "Tidemill", "books": "tidb_cdc", "page": "sinks/mysql", "smaller": ": max-txn-row, transaction-atomicity=none",
        "zone": ", or give time-zone=+08:00 in the sink URI",
    },
    _D: {
        "program": "the Drainer", "books": "tidb_binlog", "page": "binlog/drainer", "smaller": ": txn-batch",
        "zone": ", or give time_zone = '+08:00' in [syncer.to.params]",
    },
    _R: {"program": "Tidemill", "books": "tidb_binlog", "page": "binlog/reparo", "smaller": ": txn-batch", "zone": ""},
    _S: {
        "program": "the consumer", "books": "tidb_cdc", "page": "consumer", "smaller": ": max-txn-row",
        "zone": ", or give time-zone=+08:00 in the sink URI",
    },
    _V: {"program": "Tidemill", "books": "views", "page": "views", "smaller": "", "zone": ""},
}  # fmt: skip
_ALSO: dict[tuple[Program, int], str] = {
    (_C, 1146): " Rows from before the changefeed began come with `tidemill resync` of the table, once it is there.",
}


def hint_of(code: int, program: Program = Program.CHANGEFEED) -> str:
    """Return what to do about an error; empty where its text says it."""
    if code not in COMMON:
        return ""
    return COMMON[code].format(go_on=program.value, **_WORDS[program]) + _ALSO.get((program, code), "")
