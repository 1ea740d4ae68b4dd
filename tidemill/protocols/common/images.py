"""Images of rows for column functions: decoded columns in a reader's schema, or as they describe themselves. Shared by the protocols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tidemill.errors import MalformedMessage
from tidemill.protocols.common.typed import Cast, Value, caster


class NamedValue(Protocol):
    """A decoded column."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> Value: ...


_Column = TypeVar("_Column", bound=NamedValue)
Refuse = Callable[[str, str], MalformedMessage]
"""Field and what is wrong with it → the protocol's error."""


def casts_of(schema: pa.StructType | None) -> dict[str, Cast] | None:
    """How values of each wanted column are cast; None without a schema. Raises ValueError for a type that no column can have."""
    return None if schema is None else {field.name: caster(field.type) for field in schema}


def image(
    columns: Sequence[_Column], name: str, casts: dict[str, Cast] | None, describe: Callable[[_Column], dict[str, Any]], refuse: Refuse
) -> Any:
    """The image of these columns, None for none: a struct's members, or without casts pairs of a map.

    Raises what `refuse` makes of a value that is not of the wanted type; `name` is the image's in the message.
    """
    if not columns:
        return None
    if casts is None:
        return [(column.name, describe(column)) for column in columns]
    values = {}
    for column in columns:
        cast = casts.get(column.name)
        if cast is not None and column.value is not None:
            try:
                values[column.name] = cast(column.value)
            except ValueError as error:
                raise refuse(f"{name}.{column.name}", str(error)) from None
    return values


def text_and_bytes(value: Value, *, binary: bool) -> dict[str, Any]:
    """A value that describes itself: as text, but bytes of binary columns as they are."""
    if isinstance(value, bytes):
        return {"value": None, "bytes": value} if binary else {"value": value.decode("utf-8", "replace"), "bytes": None}
    return {"value": value if value is None or isinstance(value, str) else repr(value), "bytes": None}


def placed(error: MalformedMessage, index: int) -> MalformedMessage:
    """The error with the message's number in its batch."""
    return MalformedMessage(f"message {index} of the batch: {error.message}", hint=error.hint)
