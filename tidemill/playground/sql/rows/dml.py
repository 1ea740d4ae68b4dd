"""INSERT, REPLACE, UPDATE, DELETE and SELECT of the playground's SQL subset, over a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidemill.errors import SqlError
from tidemill.playground.sql.catalog import ROW_ID_STEP, Catalog, Table, row_id_key
from tidemill.playground.sql.parse import ast
from tidemill.playground.sql.parse.expressions import Scope, evaluate, is_true
from tidemill.playground.sql.rows.rowcodec import Row
from tidemill.playground.sql.rows.transaction import Transaction
from tidemill.playground.sql.rows.values import to_plain
from tidemill.playground.store.cluster import Cluster
from tidemill.tidb import keys
from tidemill.tidb.rows.cells import Plain
from tidemill.tidb.rows.defaults import from_text
from tidemill.tidb.schema.codes import ColumnFlag, HandleKind, MySQLType, SchemaState
from tidemill.tidb.schema.model import ColumnInfo

AUTO_RANDOM_BITS = 63


class Duplicate(SqlError):
    """A row would take a key that another row has."""

    def __init__(self, table: Table, key: bytes) -> None:
        super().__init__(f"duplicate entry in table {table.name}")
        self.key = key


class Dml:
    """Runs statements on the newest rows within a transaction. `now` is the statement's moment (UTC) as text."""

    def __init__(self, cluster: Cluster, catalog: Catalog, transaction: Transaction, now: str) -> None:
        self._cluster, self._catalog, self._tx, self._now = cluster, catalog, transaction, now

    # INSERT

    def insert(self, table: Table, statement: ast.Insert) -> int:
        """Returns the number of rows written. Raises SqlError."""
        columns = self._named(table, statement.columns)
        affected = 0
        for values in statement.rows:
            if values and len(values) != len(columns):
                raise SqlError(f"table {table.name}: {len(columns)} columns but {len(values)} values")
            row = self._new_row(table, dict(zip((c.id for c in columns), values, strict=False)))
            affected += self._insert_row(table, row, statement)
        return affected

    def insert_plain(self, table: Table, row: Row, *, replace: bool = False) -> bytes:
        """Write a row of plain values (missing columns take their defaults); returns its record key. Raises SqlError."""
        row = self._new_row(table, {}, row)
        return self._write_new(table, row, self._row_id(table), replace=replace)

    def exists(self, key: bytes) -> bool:
        """Whether a row is there. Raises SqlError when another transaction holds it."""
        return self._tx.get(key) is not None

    def delete_key(self, table: Table, key: bytes) -> None:
        """Delete the row of a record key. Raises SqlError."""
        self._remove(table, key, self._read(table, key))

    def update_key(self, table: Table, key: bytes, changes: Row) -> bytes:
        """Change columns (plain values by id) of the row of a record key; returns its record key afterwards. Raises SqlError."""
        before = self._read(table, key)
        after = {**before, **changes}
        return self._replace(table, key, before, after)

    def _named(self, table: Table, names: Sequence[str]) -> list[ColumnInfo]:
        if not names:
            return table.codec.given
        return [self._column(table, name) for name in names]

    @staticmethod
    def _column(table: Table, name: str) -> ColumnInfo:
        column = table.codec.by_name.get(name.lower())
        if column is None:
            raise SqlError(f"table {table.name} has no column {name}")
        return column

    def _new_row(self, table: Table, given: Mapping[int, ast.Expr], plains: Row | None = None) -> Row:
        row: Row = dict(plains or {})
        for column in table.codec.given:
            if column.id in row:
                continue
            expr = given.get(column.id)
            if expr is None or isinstance(expr, ast.DefaultValue):
                row[column.id] = self._default(table, column)
            else:
                value = to_plain(column, evaluate(expr, Scope(table.codec.readable(row), self._now)))
                row[column.id] = self._automatic(table, column) if value is None and column in table.codec.automatic else value
        self._check_nulls(table, row)
        self._note_automatic(table, row)
        table.codec.complete(row)
        return row

    def _default(self, table: Table, column: ColumnInfo) -> Plain | None:
        if column in table.codec.automatic:
            return self._automatic(table, column)
        if column.default == "CURRENT_TIMESTAMP":
            return to_plain(column, self._now)
        if column.default is not None:
            if column.tp == MySQLType.BIT and column.default_bit is not None:
                return int.from_bytes(column.default_bit, "big")
            return from_text(column, column.default)
        if column.not_null:
            raise SqlError(f"column {column.name} of table {table.name} has no default value")
        return None

    def _automatic(self, table: Table, column: ColumnInfo) -> int:
        bits = int(table.info["auto_random_bits"])
        if bits and column.flag & ColumnFlag.PRIMARY_KEY:
            number = self._row_id(table)
            shard = (number * 0x9E3779B1 & 0xFFFFFFFF) >> (32 - bits)
            return shard << (AUTO_RANDOM_BITS - bits) | number
        return self._row_id(table)

    def _row_id(self, table: Table) -> int:
        """Return a new row id. The meta range notes in steps how far ids are taken."""
        ids = table.row_ids
        number = ids.next()
        if number > ids.limit:
            ids.limit = (number // ROW_ID_STEP + 1) * ROW_ID_STEP
            self._cluster.transact([(row_id_key(table.schema_id, table.id), b"%d" % ids.limit)])
        return number

    @staticmethod
    def _note_automatic(table: Table, row: Row) -> None:
        """An explicit value of an AUTO_INCREMENT column moves the counter."""
        for column in table.codec.automatic:
            value = row.get(column.id)
            if not table.info["auto_random_bits"] and isinstance(value, int) and 0 < value < 1 << 62:
                table.row_ids.rebase(value)

    @staticmethod
    def _check_nulls(table: Table, row: Row) -> None:
        for column in table.codec.required:
            if row.get(column.id) is None:
                raise SqlError(f"column {column.name} of table {table.name} cannot be null")

    def _insert_row(self, table: Table, row: Row, statement: ast.Insert) -> int:
        row_id = self._row_id(table) if table.model.handle_kind is HandleKind.HIDDEN else 0
        try:
            self._write_new(table, row, row_id, replace=statement.on_conflict is ast.OnConflict.REPLACE)
        except Duplicate as error:
            if statement.on_duplicate:
                return self._update_duplicate(table, error.key, row, statement.on_duplicate)
            if statement.on_conflict is ast.OnConflict.IGNORE:
                return 0
            raise
        return 1

    def _write_new(self, table: Table, row: Row, row_id: int, *, replace: bool) -> bytes:
        codec = table.codec
        if table.model.handle_kind is HandleKind.HIDDEN and not row_id:
            row_id = self._row_id(table)
        targets = codec.keys(row, codec.handle(row, row_id))
        while (taken := self._taken_by(table, row, targets[0])) is not None:
            if not replace:
                raise Duplicate(table, taken)
            self._remove(table, taken, self._read(table, taken))
        self._put(table, row, targets)
        self._tx.inserted(table, targets[0], row)
        return targets[0]

    def _taken_by(self, table: Table, row: Row, key: bytes, own: bytes = b"") -> bytes | None:
        """The record key of another row that has the primary key or unique values of this one."""
        if key != own and self._tx.get(key) is not None:
            return key
        for index_id in self._unique_indexes(table):
            values = table.codec.unique_values(row, index_id)
            if values is not None:
                found = self._unique(table, index_id).get(values)
                if found is not None and found != own:
                    return found
        return None

    def _update_duplicate(self, table: Table, key: bytes, row: Row, assignments: Sequence[tuple[str, ast.Expr]]) -> int:
        before = self._read(table, key)
        scope = Scope(table.codec.readable(before), self._now, table.codec.readable(row))
        return 2 if self._update_row(table, key, before, assignments, scope) else 0

    # UPDATE, DELETE, SELECT

    def update(self, table: Table, statement: ast.Update) -> int:
        """Returns the number of rows changed. Raises SqlError."""
        changed = 0
        for key, row in self._matching(table, statement.where, statement.limit):
            self._tx.lock(key)
            changed += self._update_row(table, key, row, statement.assignments, Scope(table.codec.readable(row), self._now))
        return changed

    def _update_row(self, table: Table, key: bytes, before: Row, assignments: Sequence[tuple[str, ast.Expr]], scope: Scope) -> bool:
        codec = table.codec
        after = dict(before)
        for name, expr in assignments:
            column = self._column(table, name)
            if column.is_generated:
                raise SqlError(f"column {name} is generated")
            value = self._default(table, column) if isinstance(expr, ast.DefaultValue) else to_plain(column, evaluate(expr, scope))
            after[column.id] = value
        assigned = {name.lower() for name, _ in assignments}
        if any(after[c.id] != before[c.id] for c in codec.given):
            for column in codec.touched_on_update:
                if column.name.lower() not in assigned:
                    after[column.id] = to_plain(column, self._now)
        return self._replace(table, key, before, after) is not key

    def _replace(self, table: Table, key: bytes, before: Row, after: Row) -> bytes:
        """Replace a row and return its record key: the same object if nothing changed."""
        codec = table.codec
        self._check_nulls(table, after)
        codec.complete(after)
        if all(after.get(c.id) == before.get(c.id) for c in codec.public):
            return key
        handle = keys.parse_record_key(key).handle
        targets = codec.keys(after, codec.handle(after, handle if isinstance(handle, int) else 0))
        taken = self._taken_by(table, after, targets[0], key)
        if taken is not None:
            raise Duplicate(table, taken)
        self._delete_row(table, key, before)
        self._put(table, after, targets)
        if targets[0] == key:
            self._tx.updated(table, key, before, after)
        else:
            self._tx.deleted(table, key, before)
            self._tx.inserted(table, targets[0], after)
        return targets[0]

    def delete(self, table: Table, statement: ast.Delete) -> int:
        """Returns the number of rows deleted. Raises SqlError."""
        found = self._matching(table, statement.where, statement.limit)
        for key, row in found:
            self._remove(table, key, row)
        return len(found)

    def select(self, table: Table, statement: ast.Select) -> tuple[list[str], list[tuple[ast.Value, ...]]]:
        """Labels and rows. Raises SqlError."""
        matching = self._matching(table, statement.where, statement.limit)
        if statement.for_update:
            for key, _ in matching:
                self._tx.lock(key)
        rows = [table.codec.readable(row) for _, row in matching]
        counts = [expr for _, expr in statement.items if isinstance(expr, ast.Call) and expr.name == "count"]
        if counts:
            return [label for label, _ in statement.items], [tuple(len(rows) for _ in statement.items)]
        labels: list[str] = []
        parts: list[ast.Expr] = []
        for label, expr in statement.items:
            if expr is None:
                labels += [c.name for c in table.codec.public]
                parts += [ast.ColumnRef(c.name) for c in table.codec.public]
            else:
                labels.append(label)
                parts.append(expr)
        return labels, [tuple(evaluate(part, Scope(row, self._now)) for part in parts) for row in rows]

    # rows

    def _read(self, table: Table, key: bytes) -> Row:
        value = self._tx.get(key)
        if value is None:
            raise SqlError(f"table {table.name}: a row that an index knows is gone")
        return table.codec.row(key, value)

    def _put(self, table: Table, row: Row, targets: Sequence[bytes]) -> None:
        value = table.codec.value(row)
        for key in targets:
            self._tx.put(key, value)
        for index_id in self._unique_indexes(table):
            values = table.codec.unique_values(row, index_id)
            if values is not None:
                entries = self._unique(table, index_id)
                entries[values] = targets[0]
                self._tx.on_rollback(lambda entries=entries, values=values: entries.pop(values, None))  # type: ignore[misc]

    def _remove(self, table: Table, key: bytes, row: Row) -> None:
        self._delete_row(table, key, row)
        self._tx.deleted(table, key, row)

    def _delete_row(self, table: Table, key: bytes, row: Row) -> None:
        for target in {key, *table.codec.keys(row, keys.parse_record_key(key).handle)}:
            self._tx.delete(target)
        for index_id in self._unique_indexes(table):
            values = table.codec.unique_values(row, index_id)
            if values is not None:
                entries = self._unique(table, index_id)
                entries.pop(values, None)
                self._tx.on_rollback(lambda entries=entries, values=values: entries.__setitem__(values, key))  # type: ignore[misc]

    def _matching(self, table: Table, where: ast.Expr | None, limit: int | None) -> list[tuple[bytes, Row]]:
        found: list[tuple[bytes, Row]] = []
        for key, value in self._candidates(table, where):
            if limit is not None and len(found) >= limit:
                break
            row = table.codec.row(key, value)
            if where is None or is_true(evaluate(where, Scope(table.codec.readable(row), self._now))):
                found.append((key, row))
        return found

    def _candidates(self, table: Table, where: ast.Expr | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows that may match: those whose integer handles WHERE names, or all."""
        handles = self._named_handles(table, where)
        if handles is None:
            for physical in table.model.physical_ids:
                yield from self._tx.scan(*keys.record_range(physical))
            return
        for handle in sorted(handles):
            for physical in table.model.physical_ids:
                key = keys.record_key(physical, keys.signed_handle(handle))
                value = self._tx.get(key)
                if value is not None:
                    yield key, value

    @staticmethod
    def _named_handles(table: Table, where: ast.Expr | None) -> set[int] | None:
        """The handles that `pk = n` or `pk IN (…)` (possibly AND more) allows; None when WHERE does not say."""
        column = table.model.pk_column
        if column is None or where is None:
            return None
        match where:
            case ast.Binary("and", left, right):
                return Dml._named_handles(table, left) or Dml._named_handles(table, right)
            case ast.Binary("=", ast.ColumnRef(name), ast.Literal(value)) if name.lower() == column.name.lower():
                return {value} if isinstance(value, int) else None
            case ast.InList(ast.ColumnRef(name), values) if name.lower() == column.name.lower():
                numbers = [v.value for v in values if isinstance(v, ast.Literal) and isinstance(v.value, int)]
                return set(numbers) if len(numbers) == len(values) else None
        return None

    # unique indexes

    @staticmethod
    def _unique_indexes(table: Table) -> list[int]:
        clustered = table.model.is_common_handle
        return [i.id for i in table.model.indices if i.unique and i.state in _CHECKED and not (clustered and i.primary)]

    def _unique(self, table: Table, index_id: int) -> dict[tuple[object, ...], bytes]:
        """The entries of a unique index, built from the rows on first use."""
        entries = table.unique.get(index_id)
        if entries is None:
            entries = table.unique[index_id] = {}
            for physical in table.model.physical_ids:
                for key, value in self._tx.scan(*keys.record_range(physical)):
                    values = table.codec.unique_values(table.codec.row(key, value), index_id)
                    if values is not None:
                        entries[values] = key
        return entries


_CHECKED = (SchemaState.WRITE_ONLY, SchemaState.WRITE_REORG, SchemaState.PUBLIC)
