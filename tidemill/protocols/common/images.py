"""Row images for column functions: decoded columns in a reader's schema, or with the types of the message. Shared by the protocols."""

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
"""Makes the protocol's error from a field and what is wrong with it."""


def casts_of(schema: pa.StructType | None) -> dict[str, Cast] | None:
    """Return the cast of each wanted column, or None without a schema. Raises ValueError for a type that no column can have."""
    return None if schema is None else {field.name: caster(field.type) for field in schema}


def image(
    columns: Sequence[_Column], name: str, casts: dict[str, Cast] | None, describe: Callable[[_Column], dict[str, Any]], refuse: Refuse
) -> Any:
    """Return the image of these columns, or None without columns: a struct's members, or pairs of a map if there are no casts.

    Raises the error of `refuse` for a value that does not fit the wanted type. `name` is the image's name in the message.
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
    """Return a value without a wanted type: as text, or as bytes in a binary column."""
    if isinstance(value, bytes):
        return {"value": None, "bytes": value} if binary else {"value": value.decode("utf-8", "replace"), "bytes": None}
    return {"value": value if value is None or isinstance(value, str) else repr(value), "bytes": None}


def placed(error: MalformedMessage, index: int) -> MalformedMessage:
    """Return the error with the message's number in its batch."""
    return MalformedMessage(f"message {index} of the batch: {error.message}", hint=error.hint)
