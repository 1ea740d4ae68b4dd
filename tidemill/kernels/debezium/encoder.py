"""ROW records → Debezium messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill.kernels.debezium.program import compile_table
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord
from tidemill.kernels.templates.encoder import TextRowEncoder, Texts
from tidemill.kernels.write.tables import O_SHORT, TABLES
from tidemill.protocols.debezium.encode import DebeziumTable
from tidemill.protocols.options import EncodingOptions, MessageFormat


def _texts() -> Texts:
    """Return constant tables without short escapes for backspace and form feed."""
    tables = TABLES.copy()
    tables[[O_SHORT + 8, O_SHORT + 12]] = 0
    return Texts(tables=tables)


_TEXTS = _texts()


class DebeziumRowEncoder(TextRowEncoder):
    """See `TextRowEncoder`. A message's key is the row's handle key."""

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions | None = None, *, clock: Callable[[], int]) -> None:
        options = options or EncodingOptions(MessageFormat.DEBEZIUM)
        self.tables = [DebeziumTable(p.schema, p.table, p.info, options, p.json) for p in programs]
        compiled = [compile_table(program, table) for program, table in zip(programs, self.tables, strict=True)]
        super().__init__(programs, options, compiled, _TEXTS, clock)

    def _row(self, record: RawRecord, now_ms: int) -> tuple[bytes, bytes]:
        table = self.tables[record.table]
        return table.row(record.key, record.value, record.old_value, record.start_ts, record.commit_ts, now_ms)

    def key_of(self, record: RawRecord) -> bytes:
        return self._row(record, 0)[0]

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        return self._row(record, now_ms)[1]
