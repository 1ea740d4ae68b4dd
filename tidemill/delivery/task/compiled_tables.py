"""What a worker process builds from a pack: the kernels' table map and rules, programs of the tables in use, the encoder.

A table's part is built when its first row comes: from a pack of thousands of tables, a task builds only those that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.delivery.inputs.table_pack import Output, Pack, PackedTable
from tidemill.delivery.task.encoder import EncodesRows, LimitedEncoder, Skipper
from tidemill.delivery.task.row_filter import RowFilters
from tidemill.delivery.wall_clock import wall_clock_ms
from tidemill.delivery.work_item import NAMED_ROWS
from tidemill.errors import ConfigError, MalformedRow, MessageTooLarge, SchemaError
from tidemill.kernels.flow import layout as f
from tidemill.kernels.flow.layout import Mode, TableMap
from tidemill.kernels.routing import handle_hash
from tidemill.kernels.routing.identity import ColumnChange, KeyHash, unique_slots
from tidemill.kernels.rows.layout import ValueOp
from tidemill.kernels.rows.mount import MountEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.protocols.all import spec_of
from tidemill.protocols.common.messages import Messages
from tidemill.protocols.spec import Needs, load
from tidemill.protocols.sql.keys import always_split
from tidemill.rules.dispatch import DispatchMode, hashed_columns, table_hash
from tidemill.rules.skip import with_way_out
from tidemill.sinks.claim_check import keeper
from tidemill.tidb.schema.model import ColumnInfo

Rows = npt.NDArray[np.void]


class _Kernels:
    """The kernels for the tables in use. They are built again when another table comes into use."""

    def __init__(self, pack: Pack, used: list[_Used]) -> None:
        programs = [one.program for one in used]
        shown, tables = [one.shown for one in used], [one.table for one in used]
        self.encoder = LimitedEncoder(pack, lambda output: row_encoder(output, shown, tables, pack.first_target))
        self.splits = ColumnChange(programs, [one.split_slots for one in used])
        self.key_hash = KeyHash(programs, [[c.name for c in one.hashed] if one.mode >= Mode.HASH else [] for one in used])
        self.filters = RowFilters([one.table.row_filter for one in used], programs, pack.output.ignored_start_ts)

    @property
    def slow_rows(self) -> int:
        return self.encoder.slow_rows + self.splits.slow_rows + self.key_hash.slow_rows + self.filters.slow_rows


class _Used:
    """A table in use: the program that routes its rows (all columns) and the one that encodes them (without dropped columns)."""

    def __init__(self, table: PackedTable, apart: int | None, output: Output, parts: int) -> None:
        """`apart`: the one physical partition that this stands for; None: the whole table."""
        self.table, self.apart = table, apart
        self.program = TableProgram.of(table.version, output.zone, output.json)
        differs = table.dropped or table.target is not None
        self.shown = TableProgram.of(table.shown, output.zone, output.json) if differs else self.program
        self.hashed = hashed_columns(table.rule, table.version.info)
        self.mode = Mode.FIXED
        if parts > 1 and table.rule.mode is DispatchMode.TS:
            self.mode = Mode.TS
        elif parts > 1 and self.hashed:
            self.mode = _hash_mode(self.hashed, self.program)
        self.split_slots = self._split_slots(output)

    def _split_slots(self, output: Output) -> list[int]:
        """Slots of the columns whose change splits an update."""
        if output.encoding.output_raw_change_event:
            return []
        if output.as_statements and always_split(self.shown.info):
            return sorted(self.program.slots.values())
        dispatched = {self.program.slots[c.id] for c in self.hashed} if output.split_on_dispatch_key else set()
        return sorted(dispatched.union(unique_slots(self.program)))


def _hash_mode(hashed: Sequence[ColumnInfo], program: TableProgram) -> Mode:
    """How rows are hashed by these columns. An integer handle is in the record key, and rows do not hold it."""
    own = program.info.pk_column
    if [column.id for column in hashed] != ([own.id] if own is not None else []):
        return Mode.HASH
    ops = {ValueOp.INT: Mode.HANDLE, ValueOp.UINT: Mode.UNSIGNED_HANDLE}
    return ops.get(program.ops[program.slots[hashed[0].id]], Mode.HASH)


class Compiled:
    """A pack in use. A table has one number, for its rule and its program alike. See `claim.Routing`."""

    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self.tables = TableMap()
        self._rules = np.zeros((16, f.RULE_WORDS), np.int64)
        self._starts: dict[int, npt.NDArray[np.uint32]] = {}  # what rules point to
        self._used: list[_Used] = []
        self._numbers: dict[tuple[int, int | None], int] = {}  # of tables in use, by the object's identity and the partition apart
        self._made: _Kernels | None = None
        self._skipper = Skipper(pack.output.skip_rows)
        self._corrupted: tuple[int, tuple[str, ...]] = 0, ()
        self._slow_before = 0  # of kernels that were replaced
        self._replaced: _Kernels | None = None

    @property
    def rules_address(self) -> int:
        return int(self._rules.ctypes.data)

    @property
    def slow_rows(self) -> int:
        """Rows that the plain reference handled instead of a kernel, since the pack was loaded."""
        return self._slow_before + (self._made.slow_rows if self._made is not None else 0)

    @property
    def skipped_rows(self) -> int:
        """Rows that were left out by name, since the pack was loaded."""
        return self._skipper.skipped

    def take_corrupted(self) -> tuple[int, tuple[str, ...]]:
        """How many rows did not fit their checksum since the last call, and the names of some."""
        count, names = self._corrupted
        self._corrupted = 0, ()
        return count, names

    def resolve(self, table_id: int) -> None:
        """Enter a physical id: with its table's rule, or as one whose rows are not delivered.

        Raises SchemaError for an id that no schema describes, ConfigError if the settings do not fit the table.
        """
        table = self.pack.table(table_id)
        if table is not None and table.fault:
            raise ConfigError(table.fault)
        if table is not None:
            apart = table_id if table.rule.mode is DispatchMode.PHYSICAL else None
            number = self._numbers.get((id(table), apart))
            self.tables.set(table_id, self._use(table, apart) if number is None else number)
        elif self.pack.knows(table_id):
            self.tables.set(table_id, f.DROP)
        else:
            raise SchemaError(
                f"the log has rows of a table with id {table_id}, which no schema describes",
                hint="The log's schema stream is incomplete. `tidemill log verify` may say where; else start a new log.",
            )

    def _use(self, table: PackedTable, apart: int | None) -> int:
        """Give a table the next number."""
        number = len(self._used)
        if number == len(self._rules):
            self._rules = np.concatenate([self._rules, np.zeros_like(self._rules)])
        base, parts = self.pack.first_target[table.topic], self.pack.partitions[table.topic]
        used = _Used(table, apart, self.pack.output, parts)
        if apart is None:
            fixed = base + table_hash(table.version.schema, table.version.table) % parts
        else:
            fixed = base + (table.version.physical_ids.index(apart) if parts > 1 else 0)
        self._rules[number, : f.RULE_SEED] = used.mode, base, parts, fixed if used.mode is Mode.FIXED else -1, bool(used.split_slots)
        if used.mode > Mode.HASH:
            starts = handle_hash.starts(used.hashed[0].name)
            self._starts[starts.ctypes.data] = starts
            seed = table_hash(table.version.schema, table.version.table)
            self._rules[number, f.RULE_SEED :] = seed, starts.ctypes.data, handle_hash.digits().ctypes.data
        self._used.append(used)
        self._numbers[id(table), apart] = number
        self._slow_before, self._replaced, self._made = self.slow_rows, self._made or self._replaced, None
        return number

    @property
    def _kernels(self) -> _Kernels:
        if self._made is None:
            self._made = _Kernels(self.pack, self._used)
            if self._replaced is not None:
                self._made.encoder.carry_on(self._replaced.encoder)
                self._replaced = None
        return self._made

    def begin(self) -> None:
        """Begin an item."""
        self._replaced = None
        if self._made is not None:
            self._made.encoder.begin()

    def finish(self) -> list[Messages]:
        """What an item's messages end with, for protocols that mark transactions."""
        return self._kernels.encoder.finish() if self._made is not None or self._replaced is not None else []

    def encode(self, rows: Rows, groups: npt.NDArray[np.int32]) -> Messages:
        """Messages of arranged rows; valid until the next call. Raises the encoder's error for a row, with a hint how to go on."""
        if self._skipper:
            rows, groups = self._skipper.keep(rows, groups, [used.table for used in self._used])
        encoder = self._kernels.encoder
        try:
            return encoder.encode(rows, groups)
        except (MessageTooLarge, MalformedRow) as error:
            raise with_way_out(error) from error
        finally:
            count, names = encoder.take_corrupted()
            if count:
                self._corrupted = self._corrupted[0] + count, (*self._corrupted[1], *names)[:NAMED_ROWS]

    def kept(self, rows: Rows) -> Rows:
        """The rows without those that event filters leave out."""
        filters = self._kernels.filters
        return filters.kept(rows) if filters else rows

    def changed(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """A byte for each row: set for an update that is to be split, because it changes a column of a key."""
        return self._kernels.splits.changed(rows)

    def hashes(self, rows: Rows) -> npt.NDArray[np.uint32]:
        """The hash of each row, by schema, table and the columns that its rule names."""
        return self._kernels.key_hash.hash(rows)


def row_encoder(
    output: Output, programs: list[TableProgram], tables: Sequence[PackedTable] = (), first_target: Mapping[str, int] | None = None
) -> EncodesRows:
    """The encoder of a protocol. `tables`: the tables of the programs; `first_target`: the number of each topic's partition 0. Few
    protocols use these two."""
    options = output.encoding
    if options.protocol is None:
        own: EncodesRows = load(output.encoder)(programs, options) if output.encoder else MountEncoder(programs)
        return own
    spec = spec_of(options.protocol)
    given: dict[str, Any] = {}
    if spec.large_messages:
        given["keep"] = keeper(options)
    if Needs.SCHEMA_IDS in spec.needs:
        given["schema_ids"] = [_schema_ids(table) for table in tables]
    if Needs.CLOCK in spec.needs:
        given["clock"] = wall_clock_ms
    if Needs.FIRST_TARGETS in spec.needs and first_target is not None:
        given["first_targets"] = [first_target[table.topic] for table in tables]
    encoder: EncodesRows = load(spec.encoder)(programs, options, **given)
    return encoder


def _schema_ids(table: PackedTable) -> tuple[int, int]:
    """Ids of key and value schema. Raises SchemaError if the driver did not register them."""
    if table.schema_ids is None:
        raise SchemaError(f"{table.version.schema}.{table.version.table} has rows, but its schemas are not registered: a bug")
    return table.schema_ids
