"""ROW records → SQL literals: the key of each row, and the row, with what a database's sink needs to put statements together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from tidemill.kernels.routing.identity import KeyHash
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, RowArray
from tidemill.kernels.sql.program import key_program, row_program
from tidemill.kernels.templates.encoder import TextRowEncoder, Texts
from tidemill.kernels.templates.program import TextProgram
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.options import EncodingOptions
from tidemill.protocols.sql.keys import conflict_keys
from tidemill.protocols.sql.literals import SqlTable

_TEXTS = Texts(quote=-1, delimiter=b"'", escaped_delimiter=b"\\'")


class SqlRows(Messages):
    """Messages whose key is the literals of a row's key, and whose value is the literals of the row (empty: a delete).

    `rows`: the ROW records. `tables`: the tables by ROW.table. `conflicts`: of each row a hash for each unique key, 0 for none.
    """

    __slots__ = ("conflicts", "rows", "tables")

    def __init__(
        self, messages: Messages, rows: RowArray, tables: Sequence[SqlTable], conflicts: npt.NDArray[np.uint64], others: Sequence[object]
    ) -> None:
        super().__init__(messages.table, (*messages.buffers, *others))
        self.rows, self.tables, self.conflicts = rows, tables, conflicts


class _Literals(TextRowEncoder):
    """One of the two texts of each row."""

    def __init__(
        self,
        programs: Sequence[TableProgram],
        options: EncodingOptions,
        compiled: Sequence[TextProgram],
        reference: Callable[[RawRecord], bytes],
    ) -> None:
        super().__init__(programs, options, compiled, _TEXTS)
        self._reference = reference

    @property
    def _limit(self) -> int:
        return 1 << 62

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        return self._reference(record)


class SqlRowEncoder:
    """Encodes rows as `SqlRows`. TIMESTAMP values are in UTC, whatever the changefeed's zone: they have no hour twice.

    Not safe for threads. What a call returns is valid until the next one.
    """

    def __init__(
        self, programs: Sequence[TableProgram], options: EncodingOptions, only: Sequence[Collection[str] | None] | None = None
    ) -> None:
        """`only`: for each table the columns that the database has; None: all."""
        mine = [TableProgram(p.schema, p.table, p.info, json=p.json) for p in programs]
        chosen = only if only is not None else [None] * len(mine)
        self.tables = [SqlTable(p.schema, p.table, p.info, p.json, names) for p, names in zip(mine, chosen, strict=True)]
        keys = [key_program(program, table) for program, table in zip(mine, self.tables, strict=True)]
        rows = [row_program(program, table) for program, table in zip(mine, self.tables, strict=True)]
        self._keys = _Literals(mine, options, keys, self._key_of)
        self._rows = _Literals(mine, options, rows, self._row_of)
        found = [conflict_keys(program.info) or () for program in mine]
        most = max(map(len, found), default=0)
        self._hashes = [KeyHash(mine, [keys[n] if n < len(keys) else () for keys in found]) for n in range(most)]
        self._key_count = np.array([len(keys) for keys in found] or [0])

    def _key_of(self, record: RawRecord) -> bytes:
        return self.tables[record.table].key_text(record.key, record.value, record.old_value, record.commit_ts)

    def _row_of(self, record: RawRecord) -> bytes:
        return self.tables[record.table].row_text(record.key, record.value, record.commit_ts)

    @property
    def slow_rows(self) -> int:
        """Rows that the reference encoded."""
        return self._keys.slow_rows + self._rows.slow_rows + sum(one.slow_rows for one in self._hashes)

    def encode(self, rows: RowArray, groups: npt.NDArray[np.int32]) -> SqlRows:
        """Encode rows that are grouped by target. Raises MalformedRow."""
        messages, keys = self._rows.encode(rows, groups), self._keys.encode(rows, groups)
        if len(messages):
            messages.table["key"], messages.table["key_len"] = keys.table["value"], keys.table["value_len"]
        return SqlRows(messages, rows, self.tables, self._conflicts(rows), keys.buffers)

    def _conflicts(self, rows: RowArray) -> npt.NDArray[np.uint64]:
        """A hash for each unique key that a row has. The first word is the table's where all of its rows wait for each other."""
        if not len(rows):
            return np.zeros((0, 1), np.uint64)
        tables = rows["table"]
        counts = self._key_count[tables]
        out = np.zeros((len(rows), max(1, len(self._hashes))), np.uint64)
        place = (tables.astype(np.uint64) + np.uint64(1)) << np.uint64(40)
        for n, one in enumerate(self._hashes):
            out[:, n] = np.where(counts > n, place | np.uint64((n + 1) << 32) | one.hash(rows), 0)
        out[:, 0] = np.where(counts == 0, place, out[:, 0])
        return out
