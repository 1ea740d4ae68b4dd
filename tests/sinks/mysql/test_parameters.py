"""What the parameters of statements change in the packets that a real MariaDB gets, and VECTOR for TiDB."""

from __future__ import annotations

import struct

import pytest

from tests.support.delivery.database_sinks import CREATE, LATER, change, made_of
from tests.support.faults.mysql_proxy import MysqlProxy
from tests.support.schema.tables import column, table
from tests.support.servers.mariadb import MariaDb
from tidemill.protocols.sql.literals import SqlTable
from tidemill.records import KIND_DELETE, KIND_INSERT, KIND_UPDATE
from tidemill.tidb.keys import record_key
from tidemill.tidb.rows.write import pack_row
from tidemill.tidb.schema.codes import MySQLType

pytestmark = pytest.mark.slow

CHANGES = [
    *(change(KIND_INSERT, n, n, LATER + 1) for n in range(6)),
    *(change(KIND_UPDATE, n, n + 100, LATER + 2) for n in range(10, 16)),
    *(change(KIND_DELETE, n, n, LATER + 3) for n in range(20, 24)),
    change(KIND_DELETE, 5, 5, LATER + 4),
]
BEFORE = "INSERT INTO s.t VALUES " + ",".join(f"({n},{n})" for n in (*range(10, 16), *range(20, 24)))
AFTERWARDS = [*((n, n) for n in range(5)), *((n, n + 100) for n in range(10, 16))]


def kind_of(statement: str) -> str:
    """I, U, D with the number of rows; F is the fence, S asks whether the row of the next update is there."""
    if "tidemill_lane" in statement:
        return "F"
    if statement.startswith("SELECT"):
        return "S"
    if statement.startswith("DELETE"):
        return f"D{statement.count(',') + 1}"
    verb = "U" if "ON DUPLICATE" in statement else "I"
    return f"{verb}{statement.split(' ON DUPLICATE')[0].count('),(') + 1}"


@pytest.mark.parametrize(
    ("parameters", "packets"),
    [
        ("", ["F D4 U6 I5", "COMMIT"]),
        ("max-multi-update-row=4", ["F D4 U4 U2 I5", "COMMIT"]),
        ("max-multi-update-row-size=4", ["F D4 S U1 S U1 S U1 S U1 S U1 S U1 I5", "COMMIT"]),
        ("max-txn-row=10", ["F U4 I6", "COMMIT", "F D5 U2", "COMMIT"]),
        ("multi-stmt-enable=false", ["F", "D4", "U6", "I5", "COMMIT"]),
        ("batch-dml-enable=false", ["F I1 I1 I1 I1 I1 I1 S U1 S U1 S U1 S U1 S U1 S U1 D1 D1 D1 D1 D1", "COMMIT"]),
        ("batch-dml-enable=false&multi-stmt-enable=false&max-txn-row=17", ["F", *6 * ["I1"], *6 * ["S", "U1"], *5 * ["D1"], "COMMIT"]),
        ("safe-mode=true", ["F D5 I11", "COMMIT"]),
    ],
)
def test_parameters_change_the_statements(mariadb: MariaDb, parameters: str, packets: list[str]) -> None:
    mariadb.clear()
    mariadb.run(*CREATE, BEFORE)
    seen: list[str] = []

    def judge(text: bytes, connection: int) -> None:
        if b"FOR UPDATE" in text or b"`s`." in text or (text == b"COMMIT" and seen):  # the first one ends a look at the books
            seen.append(text.decode())

    with MysqlProxy(mariadb.port, judge) as proxy, made_of(proxy) as make:  # type: ignore[arg-type]
        sink = make(parameters)
        sink.begin(1)
        seen.clear()
        sink.deliver(*CHANGES)
        sink.task.flush()
    shown = [text if text == "COMMIT" else " ".join(map(kind_of, text.removeprefix("BEGIN;").split(";"))) for text in seen]
    assert shown == packets
    assert sorted(mariadb.rows("SELECT * FROM s.t")) == AFTERWARDS


def test_a_vector_is_its_text() -> None:
    made = table([column(MySQLType.LONGLONG), column(MySQLType.VECTOR)], pk_is_handle=True)
    image = pack_row({2: struct.pack("<Ifff", 3, 1.0, 2.5, -0.125)})
    assert SqlTable("s", "t", made).row_text(record_key(100, 7), image, 1) == b"7,'[1,2.5,-0.125]'"
