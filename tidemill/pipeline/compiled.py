"""What a worker process builds of a pack: the kernels' table map and rules, programs of the tables in use, the encoder.

Everything is built when the first row of a table comes by: a pack of thousands of tables costs a task what its own rows need.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidemill.changefeed.dispatch import DispatchMode, hashed_columns, row_hash, table_hash
from tidemill.changefeed.uri import MessageFormat
from tidemill.errors import SchemaError
from tidemill.kernels.encode.open import OpenRowEncoder
from tidemill.kernels.encode.program import TableProgram
from tidemill.kernels.encode.rows import RawRecord, raw_record
from tidemill.kernels.flow import layout as f
from tidemill.kernels.flow.layout import Mode, TableMap
from tidemill.pipeline.pack import Output, Pack, PackedTable
from tidemill.protocols.messages import Messages
from tidemill.protocols.open.batch import OpenOptions

Rows = npt.NDArray[np.void]


class RowEncoder(Protocol):
    """Turns rows into messages; `slow_rows` counts those that a kernel handed to its reference."""

    slow_rows: int

    def encode(self, rows: Rows, groups: npt.NDArray[np.int32]) -> Messages: ...


class Compiled:
    """A pack in use. The number of a table here is the number of its rule and its program. See `chunks.Routing`."""

    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self.tables = TableMap()
        self._rules = np.zeros((16, f.RULE_WORDS), np.int64)
        self._used: list[PackedTable] = []
        self._programs: list[TableProgram] = []
        self._encoder: RowEncoder | None = None
        self._slow_before = 0  # rows of encoders that were replaced

    @property
    def rules_address(self) -> int:
        return int(self._rules.ctypes.data)

    @property
    def slow_rows(self) -> int:
        """Rows that went to a reference, since the pack was loaded."""
        return self._slow_before + (self._encoder.slow_rows if self._encoder is not None else 0)

    def resolve(self, table_id: int) -> None:
        """Enter a physical id: its table's rule, or that its rows are not delivered. Raises SchemaError for one that nobody knows."""
        table = self.pack.table(table_id)
        if table is not None:
            number = next((i for i, used in enumerate(self._used) if used is table), None)
            self.tables.set(table_id, self._use(table) if number is None else number)
        elif self.pack.knows(table_id):
            self.tables.set(table_id, f.DROP)
        else:
            raise SchemaError(
                f"the log has rows of a table with id {table_id}, which no schema describes",
                hint="The log's schema stream is incomplete. `tidemill log verify` may say where; else start a new log.",
            )

    def _use(self, table: PackedTable) -> int:
        number = len(self._used)
        if number == len(self._rules):
            self._rules = np.concatenate([self._rules, np.zeros_like(self._rules)])
        self._rules[number] = self._rule(table)
        self._used.append(table)
        self._programs.append(TableProgram.of(table.version, self.pack.output.zone))
        self._encoder_outdated()
        return number

    def _rule(self, table: PackedTable) -> tuple[int, ...]:
        """The words of a table's routing rule."""
        version, rule = table.version, table.rule
        base, parts = self.pack.first_target[table.topic], self.pack.partitions[table.topic]
        name = table_hash(version.schema, version.table)
        target = -1
        if parts == 1 or rule.mode is DispatchMode.TABLE:
            mode, target = Mode.FIXED, base + name % parts
        elif rule.mode is DispatchMode.TS:
            mode = Mode.TS
        elif hashed_columns(rule, version.info):
            mode = Mode.HASH
        else:
            mode, target = Mode.FIXED, base + name % parts
        info = version.info
        may_split = bool(info.unique_columns or info.handle_key_columns)
        return mode, base, parts, name, target, int(may_split), 0, 0

    def _encoder_outdated(self) -> None:
        self._slow_before = self.slow_rows
        self._encoder = None

    def encode(self, rows: Rows, groups: npt.NDArray[np.int32]) -> Messages:
        """Messages of arranged rows; valid until the next call."""
        if self._encoder is None:
            self._encoder = row_encoder(self.pack.output, self._programs)
        return self._encoder.encode(rows, groups)

    def changed(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """A byte for each row: 1 for an update of a handle or unique column."""
        return np.array([self._is_changed(raw_record(rows, i)) for i in range(len(rows))], np.uint8)

    def _is_changed(self, record: RawRecord) -> bool:
        if record.value is None or record.old_value is None:
            return False
        program = self._programs[record.table]
        info = program.info
        after = program.open.reader.read(record.key, record.value)
        before = program.open.reader.read(record.key, record.old_value)
        wanted = info.unique_columns.union(info.handle_key_columns)
        return any(a != b for c, a, b in zip(info.output_columns, after, before, strict=True) if c.id in wanted)

    def hashes(self, rows: Rows) -> npt.NDArray[np.uint32]:
        """For each row the CRC32s of the columns that its rule names, mixed."""
        return np.array([self._hash(raw_record(rows, i)) for i in range(len(rows))], np.uint32)

    def _hash(self, record: RawRecord) -> int:
        table, program = self._used[record.table], self._programs[record.table]
        image = record.value if record.value is not None else record.old_value
        assert image is not None
        cells = program.open.reader.read(record.key, image)
        return row_hash(table.rule, table.version, cells) ^ table_hash(table.version.schema, table.version.table)

    def slow_targets(self, rows: Rows) -> None:
        """Targets of rows whose rule only the reference knows."""


def row_encoder(output: Output, programs: list[TableProgram]) -> RowEncoder:
    """The encoder of a protocol."""
    match output.protocol:
        case MessageFormat.OPEN:
            return OpenRowEncoder(programs, OpenOptions(output.max_batch_size, output.max_message_bytes))
        case None:
            raise NotImplementedError
