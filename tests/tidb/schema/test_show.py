"""CREATE TABLE from descriptions: against what a real TiDB showed, and read again by what reads DDLs."""

from __future__ import annotations

import base64
import gzip
import json
import re
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.schema import schemas as s
from tests.support.thorough import one_in
from tidemill.errors import SqlError
from tidemill.playground.server import Playground
from tidemill.tidb.ddltext import canonical_ddl
from tidemill.tidb.schema.model import DBInfo, TableInfo
from tidemill.tidb.schema.show import create_database, create_table
from tidemill.wire import kvrpcpb_pb2 as kvrpcpb

RECORDING = Path(__file__).parents[2] / "golden" / "tikv" / "recordings" / "all_types.jsonl.gz"
UNKNOWN = re.compile(r"expected |unknown column")
"""What the playground's SQL, a part of TiDB's, says of the rest."""
OWN = re.compile(r"DEFAULT '-?\d+\.\d+'|/\*T!|GENERATED|^  `a` int,$")
"""Lines that the playground shows in other words: it completes decimals, prints expressions its way and drops some options."""


def shown(text: str, info: dict[str, Any], **options: Any) -> str:
    return create_table(text, TableInfo.from_json(info), UTC, **options)


def test_a_real_tidb_shows_the_same() -> None:
    expected, infos = {}, {}
    with gzip.open(RECORDING, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if line["kind"] == "select":
                expected[line["table"]] = line["create"]
            elif line["kind"] == "resp" and line["type"] == "kvrpcpb.ScanResponse":
                for pair in kvrpcpb.ScanResponse.FromString(base64.b64decode(line["b64"])).pairs:
                    if b'"cols"' in pair.value:
                        info = json.loads(pair.value)
                        infos[info["name"]["O"]] = info
    assert len(expected) == 8
    assert {name: shown("x", infos[name]).replace("`x`.", "") for name in expected} == expected


@pytest.mark.slow
def test_every_table_of_a_tidb_session_is_made_again_from_its_text() -> None:
    """All can be printed as TiCDC sends DDLs; those that the playground can make have the same description afterwards."""
    playground = Playground(1)
    playground.execute("create database d")
    made, unknown = 0, []
    lines = one_in(3, list(s.read_lines("ticdc/tables.jsonl.gz")))
    for line in lines:
        info = TableInfo.from_json(line["tableinfo"])
        if not info.has_rows:
            continue
        text = create_table("d", info, UTC)
        assert canonical_ddl(text).startswith("CREATE TABLE `d`.`")
        try:
            playground.execute(f"drop table if exists d.`{info.name}`")
            playground.execute(text)
        except SqlError as error:
            unknown.append(str(error))
            continue
        (table,) = [t for t in playground.database.catalog.tables.values() if t.name == info.name]
        again = create_table("d", table.model, UTC)
        both = list(zip(text.split("\n"), again.split("\n"), strict=True))
        assert [pair for pair in both if pair[0] != pair[1] and not OWN.search(pair[0])] == []
        made += 1
    assert made > len(lines) / 2
    assert all(map(UNKNOWN.search, unknown)), unknown


FULL = {
    **s.table(
        7,
        "o'`t",
        [
            s.column(1, "id", 0, tp=8, flag=4099),
            s.column(2, "pid", 1, tp=3, flag=0, comment="it's\\"),
            s.column(3, "at", 2, tp=7, flag=8192, default="CURRENT_TIMESTAMP"),
            s.column(4, "since", 3, tp=7, flag=1, default="2020-01-02 03:04:05"),
            s.column(5, "b", 4, tp=16, default="\u0005", default_bit="BQ=="),
            s.column(6, "u", 5, tp=15, default="uuid()", default_is_expr=True),
            s.column(7, "_V$_e_0", 6, tp=15, hidden=True, generated_expr_string="lower(`u`)"),
            s.column(8, "going", 7, state=2),
            s.column(9, "v", 8, tp=225),
        ],
        pk_is_handle=True,
        auto_random_bits=5,
        auto_random_range_bits=54,
        pre_split_regions=3,
        comment="a\nb",
        policy_ref_info={"id": 1, "name": {"O": "far", "L": "far"}},
        ttl_info={"column": {"O": "at", "L": "at"}, "interval_expr": "3", "interval_time_unit": 7, "enable": True, "job_interval": "1h"},
        constraint_info=[{"constraint_name": {"O": "c1"}, "expr_string": "`pid` > 0", "enforced": False, "state": 5}],
        fk_info=[
            {
                "fk_name": {"O": "f"}, "ref_schema": {"O": "x"}, "ref_table": {"O": "p"}, "ref_cols": [{"O": "id"}],
                "cols": [{"O": "pid"}], "on_delete": 3, "on_update": 2, "state": 5,
            }
        ],
        index_info=[
            {**s.index(1, "e", [6]), "is_invisible": True, "comment": "why"},
            {**s.index(2, "g", [1], unique=True), "is_global": True, "idx_cols": [{"name": {"O": "pid"}, "offset": 1, "length": -1}]},
            {**s.index(3, "coming", [1], state=2)},
            {**s.index(4, "near", [8]), "idx_cols": [{"name": {"O": "v"}, "offset": 8}], "vector_index": {"distance_metric": "L2"}},
        ],
        partition={
            "type": 3, "enable": True, "expr": "", "columns": [{"O": "id"}, {"O": "pid"}],
            "definitions": [
                {"id": 8, "name": {"O": "a"}, "in_values": [["1", "2"], ["3", "NULL"]], "comment": "x"},
                {"id": 9, "name": {"O": "b"}, "in_values": [["DEFAULT"]]},
            ],
        },
    )
}  # fmt: skip

SHOWN = """CREATE TABLE IF NOT EXISTS `d`.`o'``t` (
  `id` bigint NOT NULL DEFAULT /*T![auto_rand] AUTO_RANDOM(5, 54) */,
  `pid` int DEFAULT NULL COMMENT 'it''s\\\\',
  `at` timestamp DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  `since` timestamp NOT NULL DEFAULT '2020-01-02 05:04:05',
  `b` bit(11) DEFAULT b'101',
  `u` varbinary(11) DEFAULT (uuid()),
  `v` vector(11) DEFAULT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,
  KEY `e` ((lower(`u`))) /*!80000 INVISIBLE */ COMMENT 'why',
  UNIQUE KEY `g` (`pid`) /*T![global_index] GLOBAL */,
  VECTOR INDEX `near` ((VEC_L2_DISTANCE(`v`))),
  CONSTRAINT `f` FOREIGN KEY (`pid`) REFERENCES `x`.`p` (`id`) ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT `c1` CHECK ((`pid` > 0)) /*!80016 NOT ENFORCED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin /*T! PRE_SPLIT_REGIONS=3 */ COMMENT='a\\nb' \
/*T![placement] PLACEMENT POLICY=`far` */ /*T![ttl] TTL=`at` + INTERVAL 3 MONTH */ /*T![ttl] TTL_ENABLE='ON' */ \
/*T![ttl] TTL_JOB_INTERVAL='1h' */
PARTITION BY LIST COLUMNS(`id`,`pid`)
(PARTITION `a` VALUES IN ((1,2),(3,NULL)) COMMENT 'x',
 PARTITION `b` DEFAULT)""".replace("NOT NULL DEFAULT /*", "NOT NULL /*")


def test_everything_that_a_table_can_have() -> None:
    """Defaults of TIMESTAMP columns are kept in UTC and shown in the zone; what is not public is not shown."""
    info = TableInfo.from_json(FULL)
    text = create_table("d", info, timezone(timedelta(hours=2)), if_not_exists=True)
    assert text == SHOWN
    sent = canonical_ddl(text)
    assert "TTL_ENABLE = 'OFF'" in sent, "a downstream that deletes rows by itself would not be a copy"
    assert "PLACEMENT" not in sent


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({"tp": 12, "default": "CURRENT_TIMESTAMP"}, "datetime DEFAULT CURRENT_TIMESTAMP"),
        ({"tp": 10, "default": "CURRENT_DATE"}, "date DEFAULT (CURRENT_DATE)"),
        ({"tp": 15, "default": "CURRENT_TIMESTAMP"}, "varbinary(11) DEFAULT 'CURRENT_TIMESTAMP'"),
        ({"tp": 15, "default": "it's \\ \n"}, "varbinary(11) DEFAULT 'it''s \\\\ \\n'"),
        ({"tp": 3, "default": "7", "flag": 1 | 32}, "int unsigned NOT NULL DEFAULT '7'"),
        ({"tp": 3, "flag": 1 | 4096}, "int NOT NULL"),
        ({"tp": 3, "flag": 4096}, "int"),
        ({"tp": 3, "flag": 64 | 32}, "int(11) unsigned zerofill DEFAULT NULL"),
        ({"tp": 3, "flag": 1 | 512}, "int NOT NULL AUTO_INCREMENT"),
        ({"tp": 3, "generated_expr_string": "`a` + 1", "generated_stored": True}, "int GENERATED ALWAYS AS (`a` + 1) STORED"),
        ({"tp": 7, "default": "0000-00-00 00:00:00"}, "timestamp DEFAULT '0000-00-00 00:00:00'"),
    ],
)
def test_columns(column: dict[str, Any], expected: str) -> None:
    text = shown("d", s.table(5, "t", [s.column(1, "a", 0), s.column(2, "c", 1, **column)]))
    (line,) = [line for line in text.split("\n") if line.startswith("  `c`")]
    assert line == f"  `c` {expected}"
    assert canonical_ddl(text)


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (
            {"type": 2, "expr": "`a`", "definitions": [{"id": 1, "name": {"O": "p0"}}, {"id": 2, "name": {"O": "p1"}}]},
            "HASH (`a`) PARTITIONS 2",
        ),
        (
            {"type": 2, "expr": "`a`", "definitions": [{"id": 1, "name": {"O": "x"}}, {"id": 2, "name": {"O": "p1"}}]},
            "HASH (`a`)\n(PARTITION `x`,\n PARTITION `p1`)",
        ),
        ({"type": 4, "expr": "", "columns": None, "definitions": [{"id": 1, "name": {"O": "p0"}}]}, "KEY () PARTITIONS 1"),
        (
            {"type": 1, "expr": "`a`", "definitions": [{"id": 1, "name": {"O": "p"}, "less_than": ["MAXVALUE"]}]},
            "RANGE (`a`)\n(PARTITION `p` VALUES LESS THAN (MAXVALUE))",
        ),
        (
            {"type": 1, "expr": "", "columns": [{"O": "b"}], "definitions": [{"id": 1, "name": {"O": "p"}, "less_than": ["'a\u0001b'"]}]},
            "RANGE COLUMNS(`b`)\n(PARTITION `p` VALUES LESS THAN (0x610162))",
        ),
    ],
)  # fmt: skip
def test_partitions(partition: dict[str, Any], expected: str) -> None:
    text = shown("d", s.table(5, "t", partition={"enable": True, **partition}))
    assert text.partition("\nPARTITION BY ")[2] == expected
    assert "PARTITION BY" in canonical_ddl(text)


def test_databases() -> None:
    def shown_database(**members: Any) -> str:
        return create_database(DBInfo.from_json(s.database(2, "d`b", **members)))

    assert shown_database() == "CREATE DATABASE IF NOT EXISTS `d``b` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin */"
    assert canonical_ddl(shown_database()) == "CREATE DATABASE IF NOT EXISTS `d``b` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin"
    assert shown_database(charset="", collate="") == "CREATE DATABASE IF NOT EXISTS `d``b`"
