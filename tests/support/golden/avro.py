"""TiCDC's Avro messages and schemas of the golden rows, by configuration."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass

from tests.support.golden import ticdc
from tidemill.protocols.options import AvroOptions, BigintUnsignedMode, DecimalMode, EncodingOptions, MessageFormat

PRECISE = "decimal=precise,bigint-unsigned=long,ext=false"
STRINGS = "decimal=string,bigint-unsigned=string,ext=true"
CHECKSUM = "checksum: decimal=string,bigint-unsigned=string,ext=true,integrity=correctness"


@dataclass(frozen=True)
class Expected:
    """What TiCDC sent for a row. `error`: it refused to."""

    row: ticdc.Row
    topic: str
    key: bytes | None
    value: bytes | None
    key_id: int
    value_id: int | None
    error: str | None


@functools.cache
def configs() -> dict[str, EncodingOptions]:
    """The options of each configuration of rows."""
    found = {}
    for line in ticdc.lines("avro"):
        if line["kind"] == "config":
            modes = DecimalMode(line["decimal"]), BigintUnsignedMode(line["bigint_unsigned"])
            watermark = line["config"].startswith("watermark")
            found[line["config"]] = EncodingOptions(
                MessageFormat.AVRO,
                enable_tidb_extension=line["ext"],
                row_checksum=line["config"].startswith("checksum"),
                avro=AvroOptions(*modes, enable_watermark=watermark, namespace=line["namespace"]),
            )
    return found


@functools.cache
def expected() -> dict[str, list[Expected]]:
    """The messages of rows by configuration."""
    found = defaultdict(list)
    for line in ticdc.lines("avro"):
        if line["kind"] == "row":
            key, value = ticdc.raw(line.get("key")), ticdc.raw(line.get("value"))
            ids = line.get("key_schema_id", -1), line.get("value_schema_id")
            found[line["config"]].append(Expected(ticdc.rows()[line["id"]], line["topic"], key, value, *ids, line.get("error")))
    return dict(found)


@functools.cache
def schemas() -> dict[tuple[str, int], tuple[str, tuple[str, ...]]]:
    """Text and subjects of each schema that TiCDC registered, by configuration and id."""
    return {(line["config"], line["id"]): (line["schema"], tuple(line["subjects"])) for line in ticdc.lines("avro_schemas")}
