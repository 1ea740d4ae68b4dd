"""Which columns a compatibility level refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemill.registry.compare import faults, readable


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def typed(kind: str, tidb: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.parameters": {"tidb_type": tidb}, **more}


def record(*fields: dict[str, Any], name: str = "t", namespace: str = "default.app") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": namespace, "fields": fields})


ID = field("id", typed("long", "BIGINT"))
NULLABLE = field("n", ["null", typed("string", "TEXT")], default=None)
DEFAULTED = field("d", typed("int", "INT"), default=7)
REQUIRED = field("c", typed("string", "TEXT"))


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"),
    [
        (record(ID), record(ID), [], []),
        (record(ID), record(ID, NULLABLE, DEFAULTED), [], []),
        (record(ID, NULLABLE, DEFAULTED), record(ID), [], []),
        (record(ID), record(ID, REQUIRED), ["c"], []),
        (record(ID, REQUIRED), record(ID), [], ["c"]),
        (record(field("a", "int")), record(field("a", "long")), [], ["a"]),
        (record(field("a", "long")), record(field("a", "int")), ["a"], []),
        (record(field("a", "string")), record(field("a", "bytes")), [], []),
        (record(field("a", "string")), record(field("a", "int")), ["a"], ["a"]),
        (record(field("a", "int")), record(field("a", ["null", "int"], default=None)), [], ["a"]),
        (record(field("a", ["null", "int"], default=None)), record(field("a", "int")), ["a"], []),
        (record(field("a", ["int", "null"], default=1)), record(field("a", ["null", "int"], default=None)), [], []),
        (
            record(field("a", typed("bytes", "DECIMAL", logicalType="decimal", precision=10, scale=2))),
            record(field("a", typed("bytes", "DECIMAL", logicalType="decimal", precision=10, scale=4))),
            ["a"],
            ["a"],
        ),
        (record(ID), record(ID, name="u"), [""], [""]),
        (record(ID, REQUIRED, field("a", "int")), record(ID, field("b", "int"), field("a", "string")), ["b", "a"], ["c", "a"]),
    ],
)
def test_faults_by_level(old: str, new: str, backward: list[str], forward: list[str]) -> None:
    def columns(level: str) -> list[str]:
        return [fault.column for fault in faults(old, new, level)]

    assert columns("BACKWARD") == columns("BACKWARD_TRANSITIVE") == backward
    assert columns("forward") == forward
    assert set(columns("FULL")) == {*backward, *forward}
    assert columns("NONE") == []


def test_faults_are_told_with_column_and_types() -> None:
    assert [str(f) for f in faults(record(ID), record(ID, REQUIRED), "BACKWARD")] == [
        "column `c` (TEXT as string) was added NOT NULL and without default: old messages have no value for it"
    ]
    old, new = record(field("a", ["null", typed("int", "INT")], default=None)), record(field("a", typed("string", "TEXT")))
    assert [str(f) for f in faults(old, new, "BACKWARD")] == [
        "column `a` has another type: INT as int NULL and TEXT as string do not go together"
    ]


def test_types_that_readers_take() -> None:
    assert readable("double", "int")
    assert not readable("int", "double")
    assert readable(["null", "double"], ["null", "int"])
    assert not readable(["null", "double"], ["null", "string"])
    assert readable(typed("long", "BIGINT"), typed("int", "INT"))


def envelope(*columns: dict[str, Any]) -> str:
    """A schema as Debezium has it: the columns stand in a record, which a second field names."""
    row = {"type": "record", "name": "Value", "fields": list(columns)}
    return record(field("before", ["null", row], default=None), field("after", ["null", "Value"], default=None), name="Envelope")


def test_columns_of_a_row_in_an_envelope_are_named() -> None:
    old = envelope(ID, NULLABLE)
    assert faults(old, envelope(ID, NULLABLE, DEFAULTED), "BACKWARD") == ()
    assert [fault.column for fault in faults(old, envelope(ID, NULLABLE, REQUIRED), "BACKWARD")] == ["c"]
    assert [fault.column for fault in faults(old, envelope(NULLABLE), "FORWARD")] == ["id"]
    assert [fault.column for fault in faults(old, envelope(field("id", "string"), NULLABLE), "BACKWARD")] == ["id"]
    assert [fault.column for fault in faults(old, record(field("before", "int"), name="Envelope"), "BACKWARD")] == ["before"]
