"""The cluster's version is recorded in log.json, and documents are printed as that version prints them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC
from pathlib import Path

import pytest

from tests.support.capture.captures import caught_up, config, running, until
from tidemill.capture import clusterversion
from tidemill.capture.tikv.client.pd import Store
from tidemill.changefeed.replay import replay
from tidemill.changelog.log_format import IDENTITY, UpstreamVersion
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.config.file import parse_config
from tidemill.delivery.inputs.table_router import Settings
from tidemill.demo.delivered import from_jsonl
from tidemill.playground.server import Playground
from tidemill.protocols.open import RowEvent, decode
from tidemill.protocols.open.codes import ColumnType
from tidemill.protocols.open.events import Value

INSERT = "insert into d.t values ({}, '[1, 1.0, -0.0, 1e15, 1e-15]')"
OLD, NEW = "[1, 1, -0, 1000000000000000, 1e-15]", "[1, 1.0, -0.0, 1e15, 0.000000000000001]"


def versions(log: Path) -> tuple[UpstreamVersion, ...]:
    return LogReader(log).identity.upstream_versions


def printed(log: Path, out: Path, **limits: int) -> dict[Value, Value]:
    """What a replay delivers: the document by the id of its row."""
    settings = parse_config("")
    replay(str(log), Settings("test", settings.sink_uri(f"messages://{out}?protocol=open-protocol"), settings, UTC), **limits)
    events = (e for m in from_jsonl(out) for e in decode(m.key or b"", m.value) if isinstance(e, RowEvent))
    rows = [{c.type: c.value for c in event.after} for event in events]
    return {row[ColumnType.INT]: row[ColumnType.JSON] for row in rows}


def test_the_oldest_tikv_counts() -> None:
    stores = [
        Store(1, "a", "9.0.0-beta.2", tombstone=False, tiflash=False),
        Store(2, "b", "v8.5.7", tombstone=False, tiflash=False),
        Store(3, "c", "7.5.0", tombstone=True, tiflash=False),
        Store(4, "d", "7.5.0", tombstone=False, tiflash=True),
        Store(5, "e", "?", tombstone=False, tiflash=False),
    ]
    assert clusterversion.oldest_version(stores) == "v8.5.7"
    assert clusterversion.oldest_version(stores[2:]) == ""


def test_a_capture_notes_the_version_and_replays_print_as_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and when the cluster is upgraded later: rows from then on are printed in the new way, earlier rows in the old."""
    monkeypatch.setattr(clusterversion, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(clusterversion, "AHEAD_MS", 500)
    log = tmp_path / "log"

    async def main() -> None:
        async with Playground(5, resolved_interval=0.05) as playground:
            playground.execute("create database d; create table d.t (id int primary key, j json)")
            async with running(config(playground, log)) as capture:
                playground.execute(INSERT.format(1))
                await caught_up(capture, playground.cluster.oracle.next())
                assert versions(log) == (UpstreamVersion(capture.status.start_ts, "8.5.7"),)
                playground.cluster.upgrade("9.0.0")
                await until(lambda: len(versions(log)) == 2)
                upgraded = versions(log)[1]
                assert upgraded.version == "9.0.0"
                await until(lambda: playground.cluster.oracle.next() > upgraded.from_ts)
                playground.execute(INSERT.format(2))
                await caught_up(capture, playground.cluster.oracle.next())
            playground.cluster.upgrade("9.0.1")
            head = LogReader(log).resolved_ts()
            async with running(config(playground, log)) as capture:  # before it captures anything
                told = versions(log)
                assert told[:2] == (UpstreamVersion(told[0].from_ts, "8.5.7"), upgraded)
                assert told[2].version == "9.0.1"
                assert told[2].from_ts >= head
                playground.execute(INSERT.format(3))
                await caught_up(capture, playground.cluster.oracle.next())

    asyncio.run(main())
    assert verify(str(log)).is_whole
    assert printed(log, tmp_path / "all") == {1: OLD, 2: NEW, 3: NEW}
    assert printed(log, tmp_path / "again", start_ts=versions(log)[1].from_ts) == {2: NEW, 3: NEW}


def test_a_log_without_a_version_is_printed_as_before_up_to_where_a_capture_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def main() -> None:
        async with Playground(6, resolved_interval=0.05, version="9.0.0") as playground:
            playground.execute("create database d; create table d.t (id int primary key, j json)")
            async with running(config(playground, log)) as capture:
                playground.execute(INSERT.format(1))
                await caught_up(capture, playground.cluster.oracle.next())
            fields = json.loads((log / IDENTITY).read_text())  # as earlier versions of Tidemill wrote it
            assert fields.pop("upstream_versions")[0]["version"] == "9.0.0"
            (log / IDENTITY).write_text(json.dumps(fields))
            assert printed(log, tmp_path / "before") == {1: OLD}
            async with running(config(playground, log)) as capture:
                playground.execute(INSERT.format(2))
                await caught_up(capture, playground.cluster.oracle.next())

    asyncio.run(main())
    assert [v.version for v in versions(log)] == ["9.0.0"]
    assert printed(log, tmp_path / "after") == {1: OLD, 2: NEW}
