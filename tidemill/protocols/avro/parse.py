"""The text of a record's schema → its fields. Covers what Tidemill and TiCDC write: primitives, decimals, and unions with null."""

from __future__ import annotations

import enum
import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from tidemill.errors import MalformedMessage


class AvroSchemaError(MalformedMessage):
    """A text that is not an Avro schema, or a schema with more than a record of columns needs."""

    code = "TM:ErrAvroSchema"


class Primitive(enum.Enum):
    """Avro's type of a field, which decides its bytes."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"


class NoDefault(enum.Enum):
    """A field without a default."""

    TOKEN = enum.auto()


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field. `column` is the true name of its column; `tidb_type` is empty where the field is not a column.

    `null_branch` is the index of null in the union, None where it is not a union. `precision` and `scale` are None unless it is a decimal.
    """

    name: str
    column: str
    primitive: Primitive
    null_branch: int | None
    tidb_type: str
    precision: int | None
    scale: int | None
    length: int | None  # bits of a BIT
    allowed: tuple[str, ...]  # elements of ENUM and SET
    default: Any  # JSON, NoDefault.TOKEN: none


@dataclass(frozen=True, slots=True)
class RecordType:
    """A schema."""

    namespace: str
    name: str
    fields: tuple[FieldType, ...]

    def __contains__(self, name: str) -> bool:
        return any(field.name == name for field in self.fields)


@functools.lru_cache(maxsize=1024)
def parse_schema(text: str) -> RecordType:
    """Parse the schema of a record. Raises AvroSchemaError."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise AvroSchemaError(f"a schema is not JSON: {error}") from None
    except RecursionError:
        raise AvroSchemaError(f"a schema is nested too deep: {text[:200]}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise AvroSchemaError(f"a schema is not a record: {text[:200]}")
    name, namespace = str(schema.get("name", "")), str(schema.get("namespace", ""))
    return RecordType(namespace, name, tuple(_field(f"{namespace}.{name}", field) for field in schema["fields"]))


def _field(record: str, field: Any) -> FieldType:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str):
        raise AvroSchemaError(f"{record}: a field has no name")
    place = f"{record}, field {field['name']}"
    kind, null_branch = _without_null(place, field.get("type"))
    attributes = kind if isinstance(kind, dict) else {"type": kind}
    try:
        primitive = Primitive(attributes.get("type"))
    except ValueError:
        raise AvroSchemaError(f"{place}: {json.dumps(attributes.get('type'))[:100]} is not a type that a column has") from None
    parameters = attributes.get("connect.parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    decimal = attributes.get("logicalType") == "decimal"
    precision, scale = (_number(place, attributes, name) if decimal else None for name in ("precision", "scale"))
    if precision is not None and scale is not None and scale > precision:
        raise AvroSchemaError(f"{place}: a decimal of {precision} digits has no {scale} behind the point")
    return FieldType(
        name=field["name"],
        column=str(parameters.get("tidb_name", field["name"])),
        primitive=primitive,
        null_branch=null_branch,
        tidb_type=str(parameters.get("tidb_type", "")),
        precision=precision,
        scale=scale,
        length=_number(place, parameters, "length") if "length" in parameters else None,
        allowed=tuple(_elements(str(parameters["allowed"]))) if "allowed" in parameters else (),
        default=field.get("default", NoDefault.TOKEN),
    )


def _without_null(place: str, kind: Any) -> tuple[Any, int | None]:
    if not isinstance(kind, list):
        return kind, None
    others = [branch for branch in kind if branch != "null"]
    if len(kind) != 2 or len(others) != 1:
        raise AvroSchemaError(f"{place}: only unions of null and one type are read, not {json.dumps(kind)[:100]}")
    return others[0], kind.index("null")


def _number(place: str, attributes: dict[str, Any], name: str) -> int:
    text = str(attributes.get(name, 0))
    if not re.fullmatch("[0-9]{1,4}", text):
        raise AvroSchemaError(f"{place}: {name} is {text[:40]!r}")
    return int(text)


def _elements(allowed: str) -> list[str]:
    """Return the elements of `allowed`: separated by commas, commas inside escaped."""
    return [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", allowed)]
