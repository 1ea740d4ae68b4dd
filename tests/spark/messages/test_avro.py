"""`from_confluent_avro` in Spark: by the registry's latest schema, by a reader's, by asked types; each schema is fetched once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StructType

from tests.support.schema.tables import column, table
from tests.support.servers.registries import Front, MemoryRegistry, Reply
from tests.support.spark.sessions import spark_session
from tidemill.errors import RegistryError
from tidemill.protocols.avro import schemas_of
from tidemill.protocols.avro.encode import AvroTable
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.spark import from_confluent_avro
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows import Cell
from tidemill.tidb.rows.write import encode_row_v2
from tidemill.tidb.schema.codes import ColumnFlag
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import TableInfo

pytestmark = pytest.mark.spark

OPTIONS = EncodingOptions(MessageFormat.AVRO)
BEFORE = [
    column(T.LONG, name="id"), column(T.LONGLONG, name="big", Flag=int(ColumnFlag.UNSIGNED)),
    column(T.NEWDECIMAL, name="price", Flen=12, Decimal=2), column(T.TIMESTAMP, name="at"), column(T.DATE, name="day"),
    column(T.JSON, name="doc"), column(T.VARCHAR, name="note", Charset="utf8mb4"),
]  # fmt: skip
OLD = table(BEFORE, pk_is_handle=True)
NEW = table([*BEFORE[:-1], column(T.LONG, name="added", default="7")], pk_is_handle=True)
ROW: tuple[Cell, ...] = (1, (1 << 64) - 1, "-1.50", "2024-07-01 10:00:00", "2024-07-01", '{"a": [1, "x"]}')


class Registry(MemoryRegistry):
    """One that tells a subject's latest schema too."""

    def __call__(self, method: str, path: str, body: bytes) -> Reply:
        parts = path.strip("/").split("/")
        if method == "GET" and parts[0] == "subjects" and parts[2:] == ["versions", "latest"]:
            text = self.subjects[parts[1]][-1]
            return Reply(200, json.dumps({"id": self.ids[text], "schema": text}).encode())
        return super().__call__(method, path, body)

    def add(self, subject: str, text: str) -> int:
        """Register a schema."""
        self.subjects.setdefault(subject, []).append(text)
        return self.ids.setdefault(text, 1 + len(self.ids))


session = spark_session(spark__sql__session__timeZone="UTC")


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def front(registry: Registry) -> Iterator[Front]:
    with Front(registry, user="reader", password="p/w#") as front:
        yield front


def address(front: Front) -> str:
    return f"http://reader:p%2Fw%23@{front.address}"


def message(info: TableInfo, number: int, *cells: Cell) -> bytes:
    key = record_key(1, int(str(cells[0])))
    value = AvroTable("s", "t", info, UTC, OPTIONS, (9, number)).row(key, encode_row_v2(cells, info), None, 1)[1]
    assert value is not None
    return value


def written(registry: Registry) -> list[bytes | None]:
    """Messages of two versions of a table, and a delete's value."""
    old, new = (registry.add("t-value", schemas_of("s", "t", info, OPTIONS).value) for info in (OLD, NEW))
    return [message(OLD, old, *ROW, b"text"), message(NEW, new, *ROW, 5), None, message(OLD, old, 2, *[None] * 6)]


def decoded(session: Any, messages: list[bytes | None], **options: Any) -> list[Any]:
    frame = session.createDataFrame([(i, m) for i, m in enumerate(messages)], "i int, value binary").coalesce(1)
    rows = frame.select("i", from_confluent_avro("value", **options).alias("row")).orderBy("i").collect()
    return [row.row for row in rows]


def test_by_the_latest_schema(session: Any, front: Front, registry: Registry) -> None:
    messages = written(registry)
    first, second, delete, nulls = decoded(session, messages, registry=address(front), subject="t-value", tz="America/Sao_Paulo")
    shared = {"id": 1, "big": Decimal((1 << 64) - 1), "price": Decimal("-1.50"), "day": "2024-07-01", "doc": '{"a": [1, "x"]}'}
    assert {name: value for name, value in first.asDict().items() if name != "at"} == {**shared, "added": 7}
    assert second.added == 5
    assert first.at.astimezone(UTC) == datetime(2024, 7, 1, 13, tzinfo=UTC)
    assert delete is None
    assert nulls.asDict() == {"id": 2, "big": None, "price": None, "at": None, "day": None, "doc": None, "added": 7}


def test_each_schema_is_fetched_once(session: Any, front: Front, registry: Registry) -> None:
    """By each of Spark's Python processes. The second query has the first one's, unless that was not free yet."""
    messages, asked = written(registry) * 50, 0
    for most in (2, 4):
        assert len(decoded(session, messages, registry=address(front), subject="t-value")) == 200
        paths = [path.partition("?")[0] for _, path in front.requests if path.startswith("/schemas/ids/")]
        assert sorted(set(paths)) == ["/schemas/ids/1", "/schemas/ids/2"]
        assert asked <= len(paths) <= most
        asked = len(paths)


def test_the_column_types_are_tidbs(session: Any, front: Front, registry: Registry) -> None:
    messages = written(registry)
    frame = session.createDataFrame([(messages[0],)], "value binary")
    kind = frame.select(from_confluent_avro("value", registry=address(front), subject="t-value").alias("row")).schema["row"].dataType
    assert kind["big"].dataType == DecimalType(20, 0)
    assert kind["price"].dataType == DecimalType(12, 2)
    assert [field.dataType.simpleString() for field in kind] == [
        "int", "decimal(20,0)", "decimal(12,2)", "timestamp", "string", "string", "int",
    ]  # fmt: skip


def test_by_a_readers_avro_schema(session: Any, front: Front, registry: Registry) -> None:
    messages = written(registry)
    reader = schemas_of("s", "t", OLD, OPTIONS).value
    first, second, delete, _ = decoded(session, messages, registry=address(front), schema=reader)
    assert (first.note, second.note, delete) == ("text", None, None)
    assert "added" not in second.asDict()


def test_by_asked_types(session: Any, front: Front, registry: Registry) -> None:
    ddl = "id bigint, price double, day date, at timestamp, big string, nowhere int"
    for schema in (ddl, StructType.fromDDL(ddl)):
        first, *_ = decoded(session, written(registry), registry=address(front), schema=schema, tz="America/Sao_Paulo")
        assert (first.id, first.price, str(first.day), first.big, first.nowhere) == (1, -1.5, "2024-07-01", str((1 << 64) - 1), None)
        assert first.at.astimezone(UTC) == datetime(2024, 7, 1, 13, tzinfo=UTC)


def test_a_message_that_is_none_ends_the_query_with_its_place(session: Any, front: Front, registry: Registry) -> None:
    messages = written(registry)
    with pytest.raises(PythonException, match="Avro message, byte 0: it does not begin"):
        decoded(session, [b"{}"], registry=address(front), subject="t-value")
    with pytest.raises(PythonException, match="field id"):
        decoded(session, [(messages[0] or b"")[:5]], registry=address(front), subject="t-value")
    with pytest.raises(PythonException, match=r"no such schema") as caught:
        decoded(session, [b"\0\0\0\0\x63x"], registry=address(front), subject="t-value")
    assert "p%2Fw" not in str(caught.value)
    assert "p/w#" not in str(caught.value)


def test_arguments(front: Front) -> None:
    with pytest.raises(ValueError, match="either schema"):
        from_confluent_avro("value", registry=address(front))
    with pytest.raises(ValueError, match="either schema"):
        from_confluent_avro("value", registry=address(front), schema="id int", subject="t-value")
    with pytest.raises(ValueError, match="not a time zone"):
        from_confluent_avro("value", registry=address(front), schema="id int", tz="Mars/Olympus")


def test_a_subject_that_is_not_there(session: Any, registry: Registry) -> None:
    with Front(MemoryRegistry()) as front, pytest.raises(RegistryError):
        from_confluent_avro(F.col("value"), registry=front.url, subject="none-value")
