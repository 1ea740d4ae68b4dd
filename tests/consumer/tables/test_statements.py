"""What the text of a DDL does to rows: of every statement that TiDB prints, and of partitions and expressions by their rules."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.schema.schemas import read_lines
from tidemill.consumer.tables import statements as s
from tidemill.consumer.tables.definitions import new_column
from tidemill.consumer.tables.statements import effects
from tidemill.consumer.tables.values import absent, conversion
from tidemill.errors import MalformedRow, SchemaError
from tidemill.rules.partitions import Locator
from tidemill.rules.partitions.expressions import Evaluator
from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.schema.codes import ColumnFlag

NOW = datetime(2024, 2, 29, 12, 30, 15, 123_456)


@pytest.mark.slow
@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.thorough("a sixth of the statements has each kind several times"))])
def test_every_statement_that_tidb_prints_is_read(step: int) -> None:
    texts = [line["restored"] for line in read_lines("ddl/vectors.jsonl.gz") if line.get("restored")]
    assert len(texts) > 5000
    for text in texts[::step]:
        if "BY SYSTEM_TIME" not in text:  # read by TiDB's parser, and refused behind it
            effects(text, NOW)


def column_of(definition: str) -> s.ColumnInfo:
    [made] = effects(f"ALTER TABLE t ADD COLUMN {definition}", NOW)
    assert isinstance(made, s.AlterTable)
    [added] = made.changes
    assert isinstance(added, s.AddColumn)
    return added.column


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        ("c int", None), ("c int not null", 0), ("c int default -7", -7), ("c bigint unsigned default 18446744073709551615", 2**64 - 1),
        ("c bool default true", 1), ("c varchar(9) default 'é''x'", "é'x".encode()), ("c varchar(9) not null", b""),
        ("c char(5) default 'a  '", b"a"), ("c binary(3) default 'a'", b"a\0\0"), ("c varbinary(4) default x'6162'", b"ab"),
        ("c decimal(8,3) default 1.5", "1.500"), ("c decimal(5) not null", "0"), ("c double default 0.25", 0.25), ("c float not null", 0.0),
        ("c date default '2020-2-3'", "2020-02-03"), ("c datetime(3) default '2020-02-03 04:05:06.789'", "2020-02-03 04:05:06.789"),
        ("c datetime not null", "0000-00-00 00:00:00"), ("c timestamp default current_timestamp", "2024-02-29 12:30:15"),
        ("c datetime(3) default now(3)", "2024-02-29 12:30:15.123"), ("c time(2) default '-01:02:03.4'", "-01:02:03.40"),
        ("c year default 99", 1999), ("c enum('a','b') not null", 1), ("c enum('a','b') default 'b'", 2),
        ("c set('x','y') default 'x,y'", 3),
        ("c set('x','y') not null", 0), ("c bit(9) default b'101'", 5), ("c json", None), ("c text", None),
    ],
)  # fmt: skip
def test_what_old_rows_hold_in_a_new_column(definition: str, value: Cell) -> None:
    assert absent(column_of(definition)) == value


@pytest.mark.parametrize(
    ("old", "new", "value", "want"),
    [
        ("c int", "c bigint", 7, 7), ("c int", "c varchar(9)", 7, b"7"), ("c varchar(9)", "c int", b"12", 12),
        ("c int", "c double", 7, 7.0),
        ("c double", "c int", 2.5, 3), ("c decimal(8,2)", "c decimal(8,1)", "1.25", "1.3"), ("c decimal(8,2)", "c int", "-1.50", -2),
        ("c int", "c decimal(8,2)", 7, "7.00"), ("c enum('a','b')", "c varchar(9)", 2, b"b"), ("c enum('a','b')", "c enum('b','a')", 1, 2),
        ("c set('x','y')", "c text", 3, b"x,y"), ("c varchar(9)", "c enum('a','b')", b"b", 2),
        ("c date", "c datetime", "2020-01-02", "2020-01-02 00:00:00"),
        ("c datetime", "c date", "2020-01-02 03:04:05", "2020-01-02"),
        ("c datetime(3)", "c datetime", "2019-12-31 23:59:59.500", "2020-01-01 00:00:00"),
        ("c datetime", "c datetime(2)", "2020-01-02 03:04:05", "2020-01-02 03:04:05.00"),
        ("c time(3)", "c time", "-01:00:59.500", "-01:01:00"),
        ("c varchar(9)", "c binary(4)", b"ab", b"ab\0\0"), ("c varchar(9)", "c varchar(30)", b"ab", b"ab"),
        ("c int", "c int not null", None, 0),
        ("c int", "c varchar(9)", None, None),
    ],
)  # fmt: skip
def test_what_values_become_in_another_type(old: str, new: str, value: Cell, want: Cell) -> None:
    convert = conversion(column_of(old), column_of(new))
    assert (value if convert is None else convert(value)) == want


def test_what_cannot_become_a_value_of_the_new_type_is_named() -> None:
    convert = conversion(column_of("c varchar(9)"), column_of("c int"))
    assert convert is not None
    with pytest.raises(MalformedRow, match="column c: b'x' cannot become"):
        convert(b"x")


@pytest.mark.parametrize(
    ("text", "row", "want"),
    [
        ("`a` + 1", {"a": 4}, 5), ("a % 4", {"a": -7}, -3), ("(a DIV 2) * -3", {"a": 7}, -9), ("abs(`t`.`a`)", {"a": -7}, 7),
        ("year(d)", {"d": "2021-03-04"}, 2021), ("TO_DAYS(d)", {"d": "2021-03-04"}, 738218), ("to_days(d)", {"d": "0000-00-00"}, None),
        ("EXTRACT(YEAR_MONTH FROM d)", {"d": "2021-03-04 05:06:07"}, 202103), ("unix_timestamp(d)", {"d": "1970-01-02 00:00:01"}, 86401),
        ("DAYOFWEEK(d)", {"d": "2021-03-07"}, 1), ("quarter(d)", {"d": "2021-12-07"}, 4), ("TIME_TO_SEC(d)", {"d": "-01:00:01"}, -3601),
        ("a + 1", {"a": None}, None), ("_UTF8MB4'x'", {}, "x"), ("x'41'", {}, "A"), ("NULL", {}, None),
    ],
)  # fmt: skip
def test_expressions(text: str, row: dict[str, Cell], want: Cell) -> None:
    assert Evaluator(text, UTC).value(row) == want


def test_expressions_that_are_not_known_are_refused() -> None:
    for text in ("sleep(1)", "a +", "a b", "@x"):
        with pytest.raises(SchemaError, match="is not understood"):
            Evaluator(text)
    with pytest.raises(SchemaError, match="column z that is not there"):
        Evaluator("z").value({"a": 1})


COLUMNS = "`a` INT,`b` VARCHAR(10),`d` DATETIME"
PARTITIONS = [
    ("RANGE (`a`) (PARTITION p0 VALUES LESS THAN (10),PARTITION p1 VALUES LESS THAN MAXVALUE)", [(None, "p0"), (9, "p0"), (10, "p1")], "a"),
    ("RANGE (YEAR(`d`)) (PARTITION p0 VALUES LESS THAN (2020))", [("2019-12-31 00:00:00", "p0"), ("2020-01-01 00:00:00", None)], "d"),
    ("RANGE COLUMNS (`d`) (PARTITION p0 VALUES LESS THAN ('2020-1-1'),PARTITION p1 VALUES LESS THAN (MAXVALUE))",
     [("2019-12-31 23:59:59", "p0"), ("2020-01-01 00:00:00", "p1")], "d"),
    ("RANGE COLUMNS (`b`) (PARTITION p0 VALUES LESS THAN ('m'))", [(b"a", "p0"), (b"m", None)], "b"),
    ("LIST (`a`) (PARTITION p0 VALUES IN (1, 2, NULL),PARTITION p1 DEFAULT)", [(1, "p0"), (None, "p0"), (5, "p1")], "a"),
    ("LIST COLUMNS (`a`,`b`) (PARTITION p0 VALUES IN ((1, 'x'), (2, 'y')))", [(1, "p0"), (3, None)], "a"),
    ("HASH (`a`) PARTITIONS 3", [(None, "p0"), (4, "p1"), (-5, "p2")], "a"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rows", "name"), PARTITIONS)
def test_partitions(text: str, rows: list[tuple[Cell, str | None]], name: str) -> None:
    [made] = effects(f"CREATE TABLE `t` ({COLUMNS}) PARTITION BY {text}", NOW)
    assert isinstance(made, s.CreateTable)
    assert made.partitioning is not None
    locator = Locator(made.partitioning, made.columns)
    for value, partition in rows:
        assert locator.find({"a": 1, "b": b"x", "d": "2020-01-01 00:00:00", name: value}) == partition


def test_key_partitions_are_those_that_tidb_chose() -> None:
    """Rows of a real TiDB: table pkey of the golden session, by their physical ids."""
    [made] = effects("CREATE TABLE `pkey` (`a` INT,`b` VARCHAR(10),PRIMARY KEY(`a`,`b`)) PARTITION BY KEY (`a`,`b`) PARTITIONS 3", NOW)
    assert isinstance(made, s.CreateTable)
    assert made.partitioning is not None
    locator = Locator(made.partitioning, made.columns)
    found = [locator.find({"a": a, "b": b}) for a, b in ((3, b"c"), (1, b"a"), (2, b"b"), (2, b"q"))]
    assert found == ["p0", "p2", "p2", "p2"]


def test_partitions_that_no_message_tells_are_refused() -> None:
    [made] = effects(
        "CREATE TABLE t (a int) PARTITION BY RANGE (a) INTERVAL (10) FIRST PARTITION LESS THAN (10) LAST PARTITION LESS THAN (30)", NOW
    )
    assert isinstance(made, s.CreateTable)
    assert made.partitioning is not None
    with pytest.raises(SchemaError, match="made by TiDB"):
        Locator(made.partitioning, [new_column("a", 3, flag=ColumnFlag.NOT_NULL)])


@pytest.mark.parametrize(
    "text", [r"ALTER TABLE `t` ADD COLUMN `c` ENUM('a\b','\','x''y')", r"alter table t add column c enum('a\\b','\\','x\'y')"]
)
def test_elements_have_their_backslashes_by_tidb_and_by_hand(text: str) -> None:
    """TiDB prints them single, as TiCDC sends them; a user doubles them."""
    [made] = effects(text, NOW)
    assert isinstance(made, s.AlterTable)
    [added] = made.changes
    assert isinstance(added, s.AddColumn)
    assert added.column.elems == ("a\\b", "\\", "x'y")
