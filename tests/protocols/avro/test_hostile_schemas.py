"""Schemas that a registry may hold and no table has. Every reader refuses them as AvroSchemaError or AvroMessageError."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from tests.support.golden import avro
from tidemill.kernels.avro.arrow import ArrowReader, wanted_of
from tidemill.protocols.avro.decode import AvroMessageError, AvroReader, default_value
from tidemill.protocols.avro.parse import AvroSchemaError, FieldType, parse_schema

STRANGE = (
    None, True, 5, -5, 1 << 80, 1.5, 1e400, "x", "", "null", "string", "decimal", "999999999", [], ["null"], ["null", "int"], [[], []],
    ["int", "null", "long"], {}, {"type": "int"}, {"type": ["int"]},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 99},
)  # fmt: skip


def record(**field: Any) -> str:
    return json.dumps({"type": "record", "name": "t", "namespace": "s", "fields": [{"name": "c", "type": "int"} | field]})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"type":' * 100_000,
        "9" * 10_000,
        "nothing",
        record(type=["null", "int", "long"]),
        record(type={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 999999999}),
        record(type={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 6}),
    ],
)
def test_texts_that_are_no_schema(text: str) -> None:
    with pytest.raises(AvroSchemaError):
        parse_schema(text)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", "x"), ("int", True), ("int", 1.5), ("long", 1 << 80), ("boolean", 1), ("string", 5), ("double", "x"), ("double", []),
        ("float", {}), ("double", 10**400), ("double", True), ("bytes", 5), ("bytes", "?"), ("int", []), ("string", {}),
    ],
)  # fmt: skip
def test_defaults_of_other_types(kind: str, default: Any) -> None:
    text = record(type=["null", kind], default=default)
    (field,) = parse_schema(text).fields
    with pytest.raises(AvroMessageError, match=r"c: the default .* is not "):
        default_value(field)
    (wanted,) = wanted_of(parse_schema(text))
    assert wanted.missing is None


def test_changed_schemas() -> None:
    """Members of real schemas become something else: what is read of them fails with a known error, if it fails."""
    rng = random.Random(1)
    texts = sorted({text for text, *_ in avro.schemas().values()})
    refused = 0
    for _ in range(3000):
        schema = copy.deepcopy(json.loads(rng.choice(texts)))
        place = schema
        while True:
            at = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[at], dict | list) or not place[at] or rng.random() < 0.1:
                break
            place = place[at]
        place[at] = rng.choice(STRANGE)
        text = json.dumps(schema)
        try:
            parsed = parse_schema(text)
            ArrowReader(wanted_of(parsed), lambda _, text=text: text)  # type: ignore[misc]
            AvroReader(lambda _, text=text: text).writer(1)  # type: ignore[misc]
        except AvroSchemaError:
            refused += 1
            continue
        for field in parsed.fields:
            read_default(field)
    assert refused > 300


def read_default(field: FieldType) -> None:
    try:
        default_value(field)
    except AvroMessageError:
        return
