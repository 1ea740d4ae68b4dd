"""Options in any case; what is wrong with one is told by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.errors import ConfigError
from tidemill.spark.table.options import parse_table_options
from tidemill.tidb.columns.forms import TimeAs
from tidemill.tso import compose

NOW = compose(1_795_255_200_000)
GIVEN = {"pd": "pd-0:2379, pd-1:2379", "table": "shop.orders"}


def test_names_in_any_case() -> None:
    found = parse_table_options(
        {"PD": "a:1,b:2", "Table": "`a.b`.`c``d`", "as_of_ts": "-1h", "COLUMNS": "id, n", "regions-per-task": "4", "strict": "true"}
        | {"timeAs": "interval", "path": "Spark's own"}
    )
    assert (found.cluster.pd, found.table, found.columns) == (("a:1", "b:2"), ("a.b", "c`d"), ("id", "n"))
    assert (found.regions_per_task, found.strict, found.time_as) == (4, True, TimeAs.INTERVAL)
    assert found.ts(NOW) == NOW - compose(3_600_000)


def test_scans_at_once() -> None:
    assert parse_table_options(GIVEN).scans == 0, "as many as Spark runs tasks"
    assert [parse_table_options({**GIVEN, name: "8"}).scans for name in ("tikvScans", "tikv-scans", "TIKVSCANS")] == [8, 8, 8]


def test_the_ts() -> None:
    assert parse_table_options(GIVEN).ts(NOW) == NOW
    assert parse_table_options({**GIVEN, "asOfTs": str(NOW - 7)}).ts(NOW) == NOW - 7
    assert parse_table_options({**GIVEN, "asOfTimestamp": "2026-11-21T10:00:00Z"}).ts(NOW) == NOW
    with pytest.raises(ConfigError, match=rf"option asOfTs: {NOW + 1} lies in the cluster's future"):
        parse_table_options({**GIVEN, "asOfTs": str(NOW + 1)}).ts(NOW)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"tabel": "a.b"}, r"no option 'tabel'\n +Did you mean table\?"),
        ({"asOfTs": str(NOW), "asOfTimestamp": "now"}, "exclude each other"),
        ({"table": "orders"}, "'orders' is not a table"),
        ({"table": ""}, "option table is missing"),
        ({"regionsPerTask": "no"}, "option regionsPerTask: 'no' is not a number above 0"),
        ({"tikvScans": "0"}, "option tikvScans: '0' is not a number above 0"),
        ({"tikvScans": "many"}, "option tikvScans: 'many' is not a number above 0"),
        ({"ca": "/none.pem"}, "/none.pem"),
    ],
)
def test_faults(given: dict[str, str], fault: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=fault):
        parse_table_options({**GIVEN, **given})


def test_pd_is_needed() -> None:
    with pytest.raises(ConfigError, match="option pd is missing"):
        parse_table_options({"table": "a.b"})
