"""Options in any case; what is wrong with one is told by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.errors import ConfigError
from tidemill.spark.cluster.connection import Cluster
from tidemill.spark.source.options import EARLIEST, LATEST, Kind, Policy, parse_options, with_session
from tidemill.tidb.columns.forms import TimeAs
from tidemill.tso import compose


def test_names_in_any_case(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("s3://bucket/log\n")
    given = {
        "LogFile": str(file), "TABLE": "`a.b`.`c``d`", "starting_ts": "earliest", "ending-timestamp": "2026-11-21T10:00:00Z",
        "maxbytespertrigger": "64m", "MAX_ROWS_PER_TRIGGER": "5", "schemaChangePolicy": "add_columns", "timeAs": "Interval",
        "strict": "TRUE", "columns": "id, name", "initialsnapshot": "true", "schemaTs": "latest", "checkpointLocation": "/x",
    }  # fmt: skip
    found = parse_options(given)
    assert (found.log, found.kind, found.table, found.start) == ("s3://bucket/log", Kind.TABLE, ("a.b", "c`d"), EARLIEST)
    assert found.end == compose(1_795_255_200_000, (1 << 18) - 1)
    assert (found.max_bytes, found.max_rows, found.policy) == (64 << 20, 5, Policy.ADD_COLUMNS)
    assert (found.time_as, found.strict, found.columns) == (TimeAs.INTERVAL, True, ("id", "name"))
    assert (found.initial_snapshot, found.schema_ts) == (True, -1)


def test_where_it_starts() -> None:
    assert parse_options({"log": "/l", "tables": "a.*, !a.b", "startingTs": "LATEST"}).start == LATEST
    moment = parse_options({"log": "/l", "table": "a.b", "startingTimestamp": "2026-11-21T10:00:00+08:00"})
    assert moment.start == compose(1_795_226_400_000) - 1, "changes of that millisecond are read"
    assert parse_options({"log": "/l", "tables": '["a.x", "a.y,z"]'.replace(",z", "z")}).rules == ("a.x", "a.yz")
    assert parse_options({"log": "/l", "rawChanges": "true"}).kind is Kind.RAW
    cluster = parse_options({"pd": "a:1, b:2", "table": "`a.b`.`c``d`"})
    assert (cluster.log, cluster.cluster, cluster.capture_rules) == ("", Cluster(("a:1", "b:2")), ("`a.b`.`c``d`",))


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"tabel": "a.b"}, r"no option 'tabel'\n +Did you mean table\?"),
        ({"zzz": "a.b"}, r"no option 'zzz'\n +There are log, logFile, pd, ca, cert, key, table"),
        ({"table": "a.b", "Table_": "a.b"}, "option table is given twice"),
        ({"table": "ab"}, "'ab' is not a table"),
        ({"table": "a.b", "tables": "a.*"}, "exclude each other"),
        ({}, "one of the options table, tables and rawChanges"),
        ({"tables": "a"}, r"option tables: rule 'a': column 2: expected"),
        ({"tables": "a.*", "columns": "x"}, "option columns is for typed columns"),
        ({"table": "a.b", "startingTs": "soon"}, r"option startingTs: timestamp 'soon' is not understood\n.*Or earliest, latest"),
        ({"table": "a.b", "startingTs": "1", "startingTimestamp": "now"}, "exclude each other"),
        ({"table": "a.b", "startingTs": "470000000000000002", "endingTs": "470000000000000001"}, "after its end"),
        ({"table": "a.b", "strict": "yes"}, "option strict: 'yes' is neither true nor false"),
        ({"table": "a.b", "timeAs": "long"}, "option timeAs: 'long' is not one of string, interval"),
        ({"table": "a.b", "maxRowsPerTrigger": "many"}, "option maxRowsPerTrigger: 'many' is not a number above 0"),
        ({"table": "a.b", "logLease": "2 days"}, "option logLease: '2 days': expected a duration such as 10s"),
        ({"table": "a.b", "logFile": "/no/such"}, "log and logFile exclude each other"),
        ({"table": "a.b", "ca": "/ca.pem"}, "option ca is for TLS to a cluster"),
        ({"table": "a.b", "pd": "http://pd:1", "ca": "/ca.pem"}, "http://"),
    ],
)
def test_faults(given: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        parse_options({"log": "/l", **given})


def test_how_long_the_log_waits() -> None:
    assert [
        parse_options({"log": "/l", "table": "a.b", **given}).lease_s for given in ({}, {"log_lease": "1h30m"}, {"logLease": "0s"})
    ] == [*(172_800, 5400, 0)]
    assert parse_options({"log": "/l", "logLease": "1h"}, ddl=True).lease_s == 3600


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {"log": "/l"}),
        ({"log": "/m"}, {"log": "/m"}),
        ({"LogFile": "/m"}, {"LogFile": "/m"}),
        ({"pd": "pd:1"}, {"pd": "pd:1", "ca": "/ca", "cert": "/cert", "key": "/key"}),
        ({"PD": "pd:1", "Ca": "/mine"}, {"PD": "pd:1", "Ca": "/mine", "cert": "/cert", "key": "/key"}),
        ({"pd": "http://pd:1"}, {"pd": "http://pd:1"}),
    ],
)
def test_what_the_session_adds(given: dict[str, str], found: dict[str, str]) -> None:
    session = {"log": "/l", "pd": "pd:9", "ca": "/ca", "cert": "/cert", "key": "/key"}
    assert with_session(given, session) == found
    assert with_session({}, session, ("pd",)) == {name: text for name, text in session.items() if name != "log"}


def test_a_log_is_needed() -> None:
    with pytest.raises(ConfigError, match="log, logFile and pd"):
        parse_options({"table": "a.b"})
    with pytest.raises(ConfigError, match="logFile: /no/such cannot be read"):
        parse_options({"table": "a.b", "logFile": "/no/such"})
