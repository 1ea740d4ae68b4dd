"""`from_avro_cdc`, an Arrow column function: a column of Kafka keys or values in Confluent's Avro format → a struct of columns.

Each message names the id of the schema that it was written with. A worker asks the registry once for each id and keeps the text for as
long as it lives. The driver asks for a subject's latest schema, if `subject` is to say what the columns are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from tidemill.config.registry_address import parse_address
from tidemill.kernels.avro.arrow import ArrowReader, Wanted, wanted_columns, wanted_of
from tidemill.protocols.avro.parse import parse_schema
from tidemill.registry.client import RegistryClient
from tidemill.spark.messages.column_functions import mode_of, read_as
from tidemill.spark.source.versions import arrow_type_in_utc


def from_avro_cdc(
    key_or_value: Column | str,
    *,
    registry: str,
    schema: StructType | str | None = None,
    subject: str | None = None,
    tz: str = "UTC",
    mode: str = "FAILFAST",
) -> Column:
    """A struct of the columns of a message, null for a message that is null (a delete's value). `key_or_value` is Kafka's, binary.

    One of these says what the columns are:
    - `subject` ("TOPIC-value" or "TOPIC-key"): its latest schema in the registry, read once, when this function is called.
    - `schema` as an Avro schema's JSON: the reader's schema. Messages are converted to it; a column that a message lacks has
      its default.
    - `schema` as a StructType or DDL text ("id bigint, price decimal(12,2), at timestamp"): columns by name, cast to these types; null
      where messages lack them.

    `registry`: http[s]://[user:password@]host:port[/path], with ca=, cert= and key= as parameters; the workers ask it too.
    `tz`: the zone of the changefeed, in which TIMESTAMP text is. A message that cannot be read ends the query with its place and field;
    with `mode="PERMISSIVE"` it gives null. What the registry refuses ends the query in both modes.

    Raises ValueError, ConfigError for an address, AvroSchemaError, and what the registry answers (RegistryError, RegistryUnavailable).
    """
    wanted = _wanted(registry, schema, subject)
    _check_zone(tz)
    arrow = pa.struct([pa.field(one.name, one.type) for one in wanted])

    def decode(messages: pa.Array) -> pa.Array:
        return ArrowReader(wanted, texts(registry), tz).decode(messages)

    make: Any = arrow_udf  # its overloads know no nested types
    return cast(Column, make(read_as(decode, mode_of(mode)), from_arrow_type(arrow, prefer_timestamp_ntz=True))(key_or_value))


from_confluent_avro = from_avro_cdc
"""Its older name."""


def _wanted(registry: str, schema: StructType | str | None, subject: str | None) -> list[Wanted]:
    if (schema is None) == (subject is None):
        raise ValueError("from_avro_cdc needs either schema (an Avro schema, a StructType or DDL text) or subject")
    if subject is not None:
        with RegistryClient(parse_address(registry)) as client:
            return wanted_of(parse_schema(client.latest(subject)))
    if isinstance(schema, str) and schema.lstrip().startswith("{"):
        return wanted_of(parse_schema(schema))
    spark = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert spark is not None, "one of the two is given"
    return wanted_columns(cast(pa.StructType, arrow_type_in_utc(spark)))


def _check_zone(tz: str) -> None:
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"tz: {tz!r} is not a time zone") from None


@functools.lru_cache(maxsize=16)
def texts(registry: str) -> Callable[[int], str]:
    """The texts of a registry's schemas by id: each is asked for once in the life of the process. Raises ConfigError."""
    client = RegistryClient(parse_address(registry))
    return functools.lru_cache(maxsize=4096)(client.schema)
