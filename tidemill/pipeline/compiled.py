"""What a worker process builds of a pack: the kernels' table map and rules, programs of the tables in use, the encoder.

Everything is built when the first row of a table comes by: a pack of thousands of tables costs a task what its own rows need.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidemill.changefeed.dispatch import DispatchMode, hashed_columns, table_hash
from tidemill.errors import SchemaError
from tidemill.kernels.encode import KeyHash, MountEncoder, TableProgram, UniqueChange
from tidemill.kernels.encode.identity import unique_slots
from tidemill.kernels.flow import layout as f
from tidemill.kernels.flow.layout import Mode, TableMap
from tidemill.pipeline.pack import Output, Pack, PackedTable
from tidemill.protocols.messages import Messages
from tidemill.protocols.options import MessageFormat

Rows = npt.NDArray[np.void]


class RowEncoder(Protocol):
    """Turns rows into messages; `slow_rows` counts those that a kernel handed to its reference."""

    slow_rows: int

    def encode(self, rows: Rows, groups: npt.NDArray[np.int32]) -> Messages: ...


class _Kernels:
    """The kernels over the programs of the tables in use; made anew when a table joins them."""

    def __init__(self, pack: Pack, used: list[PackedTable], programs: list[TableProgram], modes: list[Mode]) -> None:
        self.encoder = row_encoder(pack.output, programs, used, pack.first_target)
        self.unique = UniqueChange(programs)
        hashed = [
            [column.name for column in hashed_columns(table.rule, table.version.info)] if mode is Mode.HASH else []
            for table, mode in zip(used, modes, strict=True)
        ]
        self.key_hash = KeyHash(programs, hashed)

    @property
    def slow_rows(self) -> int:
        return self.encoder.slow_rows + self.unique.slow_rows + self.key_hash.slow_rows


class Compiled:
    """A pack in use. The number of a table here is the number of its rule and its program. See `chunks.Routing`."""

    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self.tables = TableMap()
        self._rules = np.zeros((16, f.RULE_WORDS), np.int64)
        self._used: list[PackedTable] = []
        self._modes: list[Mode] = []
        self._programs: list[TableProgram] = []
        self._made: _Kernels | None = None
        self._slow_before = 0  # of kernels that were replaced

    @property
    def rules_address(self) -> int:
        return int(self._rules.ctypes.data)

    @property
    def slow_rows(self) -> int:
        """Rows that went to a reference, since the pack was loaded."""
        return self._slow_before + (self._made.slow_rows if self._made is not None else 0)

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
        """Give a table the next number."""
        number = len(self._used)
        if number == len(self._rules):
            self._rules = np.concatenate([self._rules, np.zeros_like(self._rules)])
        program = TableProgram.of(table.version, self.pack.output.zone)
        mode, target = self._route(table)
        base, parts = self.pack.first_target[table.topic], self.pack.partitions[table.topic]
        splits = bool(unique_slots(program)) and not self.pack.output.encoding.output_raw_change_event
        self._rules[number, :5] = mode, base, parts, target, splits
        self._used.append(table)
        self._modes.append(mode)
        self._programs.append(program)
        self._slow_before, self._made = self.slow_rows, None
        return number

    def _route(self, table: PackedTable) -> tuple[Mode, int]:
        """How the targets of a table's rows are found, and the target if it is always the same, else -1."""
        version, rule = table.version, table.rule
        base, parts = self.pack.first_target[table.topic], self.pack.partitions[table.topic]
        if parts > 1 and rule.mode is DispatchMode.TS:
            return Mode.TS, -1
        if parts > 1 and hashed_columns(rule, version.info):
            return Mode.HASH, -1
        return Mode.FIXED, base + table_hash(version.schema, version.table) % parts

    @property
    def _kernels(self) -> _Kernels:
        if self._made is None:
            self._made = _Kernels(self.pack, self._used, self._programs, self._modes)
        return self._made

    def encode(self, rows: Rows, groups: npt.NDArray[np.int32]) -> Messages:
        """Messages of arranged rows; valid until the next call."""
        return self._kernels.encoder.encode(rows, groups)

    def changed(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """A byte for each row: set for an update of a handle or unique column."""
        return self._kernels.unique.changed(rows)

    def hashes(self, rows: Rows) -> npt.NDArray[np.uint32]:
        """The hash of each row, by schema, table and the columns that its rule names."""
        return self._kernels.key_hash.hash(rows)


_ENCODERS = {
    MessageFormat.OPEN: ("tidemill.kernels.encode", "OpenRowEncoder"),
    MessageFormat.CANAL_JSON: ("tidemill.kernels.canal_json", "CanalJsonRowEncoder"),
    MessageFormat.CSV: ("tidemill.kernels.csv", "CsvRowEncoder"),
    MessageFormat.SIMPLE: ("tidemill.kernels.simple", "SimpleRowEncoder"),
    MessageFormat.AVRO: ("tidemill.kernels.avro", "AvroRowEncoder"),
}
"""Where each protocol's encoder is: loaded when it is used, so that a worker has the kernels of one protocol only."""


def row_encoder(
    output: Output, programs: list[TableProgram], tables: Sequence[PackedTable] = (), first_target: Mapping[str, int] | None = None
) -> RowEncoder:
    """The encoder of a protocol. `tables`: of the programs; `first_target`: partition 0 of each topic. Few protocols look at them."""
    options = output.encoding
    if options.protocol is None:
        return MountEncoder(programs)
    module, name = _ENCODERS[options.protocol]
    made = getattr(importlib.import_module(module), name)
    encoder: RowEncoder
    if options.protocol is MessageFormat.AVRO:
        encoder = made(programs, options, [_schema_ids(table) for table in tables])
    elif options.protocol is MessageFormat.SIMPLE and first_target is not None:
        encoder = made(programs, options, [first_target[table.topic] for table in tables])
    else:
        encoder = made(programs, options)
    return encoder


def _schema_ids(table: PackedTable) -> tuple[int, int]:
    """Raises SchemaError where the driver did not see that the table has rows."""
    if table.schema_ids is None:
        raise SchemaError(f"{table.version.schema}.{table.version.table} has rows, but its schemas are not registered: a bug")
    return table.schema_ids
