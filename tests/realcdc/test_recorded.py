"""What `INSTEAD` of test_consumers.py says that TiCDC's own messages lack, shown in recorded ones. Needs none of TiCDC's programs."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.golden.ticdc_files import ticdc_files

GOLDEN = Path(__file__).parents[1] / "golden" / "ticdc"


def recorded(name: str) -> Iterator[str]:
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from file


def test_canal_json_has_bit_without_a_length() -> None:
    """Its consumer then takes one byte."""
    found = set()
    for line in recorded("canal_json"):
        one = json.loads(line)
        if one["kind"] == "row" and one["config"] == "default" and one.get("value"):
            types = json.loads(one["value"])["mysqlType"] or {}
            found |= {text for text in types.values() if text.startswith("bit")}
    assert found == {"bit"}


def test_schema_files_have_enums_and_sets_without_members() -> None:
    """Its storage-consumer looks there for them."""
    found = []
    for name, content in ticdc_files("csv").items():
        if re.search(r"/meta/schema_\d+_\d+\.json$", name):
            found += [one for one in json.loads(content)["TableColumns"] or () if one["ColumnType"] in ("ENUM", "SET")]
    assert len(found) > 5
    assert {key for one in found for key in one} == {"ColumnName", "ColumnType"}


def test_avro_has_time_without_a_precision() -> None:
    """Its consumer then loses the fraction."""
    found = set()
    for line in recorded("avro_schemas"):
        found |= set(re.findall(r'"connect\.parameters":(\{[^{}]*"tidb_type":"TIME"[^{}]*\})', line.replace("\\\\", "").replace("\\", "")))
    assert found == {'{"tidb_type":"TIME"}'}
