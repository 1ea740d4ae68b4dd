"""ROW records → CSV lines, a row a message: an update with its old value is two lines in one."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.kernels.csv.program import compile_table
from tidemill.kernels.encode.program import TableProgram
from tidemill.kernels.encode.rows import RawRecord
from tidemill.kernels.texts.encoder import TextRowEncoder, Texts
from tidemill.protocols.csv.encode import CsvTable, escaped_delimiter
from tidemill.protocols.options import EncodingOptions, MessageFormat


class CsvRowEncoder(TextRowEncoder):
    """See `TextRowEncoder`. Lines have no size limit: they go into files."""

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions | None = None) -> None:
        options = options or EncodingOptions(MessageFormat.CSV)
        csv = options.csv
        self.tables = [CsvTable(p.schema, p.table, p.info, p.zone, csv) for p in programs]
        compiled = [compile_table(program, table) for program, table in zip(programs, self.tables, strict=True)]
        quote = csv.quote.encode()
        texts = Texts(quote=quote[0] if len(quote) == 1 else -1, delimiter=csv.delimiter.encode(), escaped_delimiter=escaped_delimiter(csv))
        super().__init__(programs, options, compiled, texts)

    @property
    def _limit(self) -> int:
        return 1 << 62

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        return self.tables[record.table].row(record.key, record.value, record.old_value, record.commit_ts)
