"""Rows that are left out by name, because no sink can take them: `SCHEMA.TABLE:KEY@COMMIT_TS`, as the error about a row names them.

KEY is the record key in hex. A rule names one change of one row, all of it: both halves of an update that is split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.errors import ConfigError, TidemillError

_FORM = re.compile(r"(.+\..+):((?:[0-9A-Fa-f]{2})+)@([0-9]{1,20})")
_NAMED = re.compile(r"row of (.+?\..+?) .*\bkey ([0-9a-f]+), start_ts [0-9]+, commit_ts ([0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SkipRow:
    """`table`: schema and name with a dot; `key`: raw record key."""

    table: str
    key: bytes
    commit_ts: int

    def __str__(self) -> str:
        return f"{self.table}:{self.key.hex()}@{self.commit_ts}"


def parse_skip_rows(texts: Iterable[str]) -> tuple[SkipRow, ...]:
    """Raises ConfigError for one that does not have the form."""
    found = []
    for text in texts:
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"skip-row {text!r}: expected SCHEMA.TABLE:KEY@COMMIT_TS with KEY in hex",
                hint="The error that a row ends a changefeed with names it in this form.",
            )
        found.append(SkipRow(match[1], bytes.fromhex(match[2]), int(match[3])))
    return tuple(dict.fromkeys(found))


def with_way_out(error: TidemillError) -> TidemillError:
    """The error, saying how to go on without the row that it names; as it is if it names none."""
    match = _NAMED.search(error.message)
    if match is None:
        return error
    way = f"--skip-row '{match[1]}:{match[2]}@{match[3]}' goes on without this row"
    made = type(error)(error.message, hint=f"{error.hint}; {way}" if error.hint else way)
    made.code, made.retryable = error.code, error.retryable
    return made
