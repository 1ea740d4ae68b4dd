"""ROW records → CSV lines, one message for each row. The message of an update with its old value has two lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.kernels.csv.program import compile_table
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, RowArray
from tidemill.kernels.templates.encoder import TextRowEncoder, Texts
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.csv.encode import CsvTable, escaped_delimiter
from tidemill.protocols.options import EncodingOptions, MessageFormat


class CsvRowEncoder(TextRowEncoder):
    """See `TextRowEncoder`. Lines have no size limit: they go into files.

    With output-field-header a message's key is the header line of its file.
    """

    def __init__(self, programs: Sequence[TableProgram], options: EncodingOptions | None = None) -> None:
        options = options or EncodingOptions(MessageFormat.CSV)
        csv = options.csv
        self.tables = [CsvTable(p.schema, p.table, p.info, p.zone, csv, p.json) for p in programs]
        compiled = [compile_table(program, table) for program, table in zip(programs, self.tables, strict=True)]
        quote = csv.quote.encode()
        texts = Texts(quote=quote[0] if len(quote) == 1 else -1, delimiter=csv.delimiter.encode(), escaped_delimiter=escaped_delimiter(csv))
        super().__init__(programs, options, compiled, texts)
        self._heads = [np.frombuffer(table.header(), np.uint8) for table in self.tables] if csv.output_field_header else []
        self._head_addresses = np.array([head.ctypes.data for head in self._heads], np.uint64)
        self._head_sizes = np.array([len(head) for head in self._heads], np.int64)

    def encode(self, rows: RowArray, groups: npt.NDArray[np.int32]) -> Messages:
        """See `TextRowEncoder.encode`."""
        messages = super().encode(rows, groups)
        if self._heads and len(messages):
            table = messages.table
            table["key"], table["key_len"] = self._head_addresses[rows["table"]], self._head_sizes[rows["table"]]
        return messages

    @property
    def _limit(self) -> int:
        return 1 << 62

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        return self.tables[record.table].row(record.key, record.value, record.old_value, record.commit_ts)
