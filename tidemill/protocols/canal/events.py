"""What entries say, as frozen objects: of entries as they stand on the wire (`Entry` and its parts), and of their rows typed (`Event`)."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.protocols.canal.codes import MYSQL, VERSION, EntryType
from tidemill.protocols.common.mysqlvalues import Value
from tidemill.protocols.open.events import RowKind

__all__ = [
    "Column",
    "DdlMessage",
    "Entry",
    "EntryColumn",
    "Event",
    "Header",
    "OtherEntry",
    "RowChange",
    "RowData",
    "RowEvent",
    "RowKind",
    "Transaction",
    "TransactionMark",
    "Value",
]

Props = tuple[tuple[str, str], ...]


# Entries


@dataclass(frozen=True, slots=True)
class Header:
    """Of every entry. The defaults are what Canal's clients read where a field is absent."""

    logfile_name: str = ""
    logfile_offset: int = 0
    server_id: int = 0
    execute_time: int = 0  # milliseconds since 1970
    schema: str = ""
    table: str = ""
    event_length: int = 0
    event_type: int | None = None  # a number of `EventType`; None in transaction entries
    props: Props = ()
    gtid: str = ""
    version: int = VERSION
    charset: str = ""
    source_type: int = MYSQL

    def prop(self, name: str) -> str | None:
        """The value of a property, None if it is absent."""
        return next((value for key, value in self.props if key == name), None)


@dataclass(frozen=True, slots=True)
class EntryColumn:
    """A column of an image. `value` is its text in UTF-8, None for NULL."""

    index: int
    sql_type: int
    name: str
    key: bool
    updated: bool
    value: bytes | None
    mysql_type: str


@dataclass(frozen=True, slots=True)
class RowData:
    """One row: the images that the change has."""

    before: tuple[EntryColumn, ...]
    after: tuple[EntryColumn, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """Rows of one table and one type, or a DDL, or the text of a statement."""

    event_type: int
    ddl: bool = False
    sql: str = ""
    ddl_schema: str = ""
    rows: tuple[RowData, ...] = ()
    table_id: int = 0
    props: Props = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """The content of TRANSACTIONBEGIN (thread_id) and TRANSACTIONEND (transaction_id)."""

    transaction_id: str = ""
    thread_id: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """`change` is there for ROWDATA, `transaction` for TRANSACTIONBEGIN and TRANSACTIONEND."""

    type: EntryType
    header: Header
    change: RowChange | None = None
    transaction: Transaction | None = None


# Events


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one image with its typed value. `updated` is as the writer set it: TiCDC sets it on every column."""

    name: str
    mysql_type: str
    sql_type: int
    key: bool
    updated: bool
    value: Value


@dataclass(frozen=True, slots=True)
class RowEvent:
    """A change of a row. `commit_ts` and `start_ts` are there in Tidemill's entries for Canal's clients; `es`, milliseconds, always is."""

    es: int
    commit_ts: int | None
    start_ts: int | None
    schema: str
    table: str
    kind: RowKind
    after: tuple[Column, ...]
    before: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class DdlMessage:
    """A DDL; `table` is empty for a DDL of a schema. `type` is CREATE, ALTER, ERASE, QUERY and so on."""

    es: int
    commit_ts: int | None
    schema: str
    table: str
    query: str
    type: str


@dataclass(frozen=True, slots=True)
class TransactionMark:
    """A transaction begins or ends."""

    es: int
    begins: bool
    transaction_id: str


@dataclass(frozen=True, slots=True)
class OtherEntry:
    """What is neither rows nor a DDL nor a transaction's end: heartbeats, GTIDs, statements of a binlog that is not in ROW format."""

    es: int
    type: str
    text: str


Event = RowEvent | DdlMessage | TransactionMark | OtherEntry
