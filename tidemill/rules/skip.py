"""--skip-row: rows that the user leaves out because no sink can take them, named `DATABASE.TABLE:KEY@COMMIT_TS` as in the error about them.

KEY is the record key in hex. It names one change of a row; of a split update it names both halves.
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
    """A row to skip. `table` is schema and name with a dot; `key` is the raw record key."""

    table: str
    key: bytes
    commit_ts: int

    def __str__(self) -> str:
        return f"{self.table}:{self.key.hex()}@{self.commit_ts}"


def parse_skip_rows(texts: Iterable[str]) -> tuple[SkipRow, ...]:
    """Parse the texts of --skip-row. Raises ConfigError for another form."""
    found = []
    for text in texts:
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"skip-row {text!r}: expected DATABASE.TABLE:KEY@COMMIT_TS with KEY in hex",
                hint="The error that a row ends a changefeed with names it in this form.",
            )
        found.append(SkipRow(match[1], bytes.fromhex(match[2]), int(match[3])))
    return tuple(dict.fromkeys(found))


def with_way_out(error: TidemillError) -> TidemillError:
    """Add the hint to skip a row to an error that names one."""
    match = _NAMED.search(error.message)
    if match is None:
        return error
    way = f"--skip-row '{match[1]}:{match[2]}@{match[3]}' goes on without this row"
    made = type(error)(error.message, hint=f"{error.hint}; {way}" if error.hint else way)
    made.code, made.retryable = error.code, error.retryable
    return made
