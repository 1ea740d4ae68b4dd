"""ROW records → Canal-JSON messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tidemill.kernels.canal_json.program import compile_table
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord
from tidemill.kernels.templates.encoder import TextRowEncoder, Texts
from tidemill.kernels.templates.layout import O_LATIN
from tidemill.kernels.write.tables import O_SHORT, TABLES
from tidemill.protocols.canal_json.encode import CanalJsonTable, Large
from tidemill.protocols.canal_json.text import string
from tidemill.protocols.common.claim_check import Keep
from tidemill.protocols.options import EncodingOptions, MessageFormat


def _tables() -> Texts:
    """Return constant tables without short escapes for backspace and form feed, and with the text of each byte as ISO-8859-1."""
    tables = np.zeros(len(TABLES) + 2048 + 64, np.uint8)
    tables[: len(TABLES)] = TABLES
    tables[[O_SHORT + 8, O_SHORT + 12]] = 0
    for byte in range(256):
        text = string(chr(byte).encode())[1:-1]
        word = text.ljust(7, b"\0") + bytes([len(text)])
        tables[O_LATIN + 8 * byte : O_LATIN + 8 * byte + 8] = np.frombuffer(word, np.uint8)
    return Texts(tables=tables)


_TEXTS = _tables()


class CanalJsonRowEncoder(TextRowEncoder):
    """See `TextRowEncoder`."""

    def __init__(
        self,
        programs: Sequence[TableProgram],
        options: EncodingOptions | None = None,
        *,
        clock: Callable[[], int],
        keep: Keep | None = None,
    ) -> None:
        options = options or EncodingOptions(MessageFormat.CANAL_JSON)
        self.tables = [CanalJsonTable(p.schema, p.table, p.info, p.zone, options, p.json) for p in programs]
        compiled = [compile_table(program, table) for program, table in zip(programs, self.tables, strict=True)]
        super().__init__(programs, options, compiled, _TEXTS, clock, keep)

    def value_of(self, record: RawRecord, now_ms: int) -> bytes:
        return self.tables[record.table].row(record.key, record.value, record.old_value, record.commit_ts, now_ms)

    def stand_in(self, record: RawRecord, now_ms: int, location: str) -> bytes:
        large = Large.CLAIM_CHECK if location else Large.HANDLE_KEY_ONLY
        table = self.tables[record.table]
        return table.row(record.key, record.value, record.old_value, record.commit_ts, now_ms, large, location)
