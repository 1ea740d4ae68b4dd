"""What a real TiKV sent, served again to a whole capture: its committed rows arrive in the log, once each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.captures import caught_up, log_changes, running
from tests.support.certificates import Authority
from tests.support.eventfeeds import Emitted
from tests.support.recorded import RecordedCluster, Select, truth
from tidemill.capture.config import CaptureConfig
from tidemill.capture.tikv.feed import Transport
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.events import Op
from tidemill.playground.gate import ServerTls
from tidemill.wire import cdcpb_pb2 as cdcpb


def everything(stream: str, request: cdcpb.ChangeDataRequest) -> bool:
    return True


def only(*chosen: tuple[str, int]) -> Select:
    """These streams and request ids."""
    return lambda stream, request: (stream, request.request_id) in chosen


CASES: dict[str, tuple[Select, int]] = {
    "scan_past": (only(("1", 1)), 18),
    "scan_with_lock": (everything, 3),
    "live_2pc": (everything, 14),
    "live_async_commit": (everything, 5),
    "live_1pc": (everything, 7),
    "live_pessimistic": (everything, 8),
    "live_rollback": (everything, 12),
    "live_conflict": (everything, 400),
    "new_table_split": (everything, 0),
    "resolved_cadence": (everything, 1),
    "pipelined_dml": (everything, 20000),
    "region_split": (only(("31", 1), ("31", 2)), 7),
    "region_merge": (only(("32", 1), ("32", 2)), 2),
    "feed_v2": (only(("25", 12)), 60),
    "partitions": (only(*((("34", r)) for r in (1, 2, 3, 4, 5, 6, 7, 8, 99))), 15),
    "filter_loop": (only(("39", 1)), 8),
    "extra_op": (only(("35", 1), ("37", 1)), 10),
    "truncate": (everything, 6),
    "all_types": (lambda stream, request: stream == "3", 35),
    "not_leader": (everything, 2),
    "store_restart": (everything, 2),
    "server_busy": (everything, 4000),
    "congested": (everything, 0),
    "gc_lost": (only(("1", 1)), 10),
}
"""Recording: which recorded registers are played, and how many rows they commit."""


def capture(cluster: RecordedCluster, folder: Path, transport: Transport = Transport.H2, ca: Path | None = None) -> list[Emitted]:
    """A capture of the recorded cluster until it is caught up; the rows of its log, checked against what was played."""

    async def main() -> None:
        async with asyncio.timeout(90), cluster:
            settings = CaptureConfig(
                pd=(cluster.pd_address,),
                log=str(folder / "log"),
                start_ts=str(cluster.start_ts),
                partitions=2,
                transport=transport,
                ca=ca,
            )
            async with running(settings) as capture_:
                await caught_up(capture_, cluster.now)
                assert capture_.status.protocol_violations == 0

    asyncio.run(main())
    rows = [row for part in log_changes(folder / "log").values() for row in part]
    assert len(rows) == len({(r.key, r.commit_ts) for r in rows})
    got = [(r.commit_ts, r.start_ts, r.key, Op.DELETE if r.value is None else Op.PUT, r.value or b"", r.old_value or b"") for r in rows]
    return sorted(got)


@pytest.mark.parametrize("name", CASES)
def test_recording(name: str, tmp_path: Path) -> None:
    select, least = CASES[name]
    cluster = RecordedCluster(name, select)
    rows = capture(cluster, tmp_path)
    assert rows == truth(cluster.scripts, cluster.start_ts)
    assert len(rows) == least
    assert cluster.waiting == [], "every recorded register was asked for"
    assert verify(tmp_path / "log").is_whole


@pytest.mark.parametrize("name", ["region_split", "live_2pc", "store_restart"])
def test_recording_through_grpc(name: str, tmp_path: Path) -> None:
    cluster = RecordedCluster(name, CASES[name][0])
    assert capture(cluster, tmp_path, Transport.GRPC) == truth(cluster.scripts, cluster.start_ts)


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("name", ["region_merge", "not_leader", "store_restart", "congested"])
def test_recording_over_tls(name: str, transport: Transport, tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    pair = authority.sign("server")
    cluster = RecordedCluster(name, CASES[name][0], tls=ServerTls(pair.certificate, pair.key))
    assert capture(cluster, tmp_path, transport, ca) == truth(cluster.scripts, cluster.start_ts)


@pytest.mark.parametrize(("name", "chosen"), [("feed_v2", only(("30", 2))), ("partitions", CASES["partitions"][0])])
def test_recording_of_a_store_without_event_feed_v2(name: str, chosen: Select, tmp_path: Path) -> None:
    cluster = RecordedCluster(name, chosen, plain=True)
    assert capture(cluster, tmp_path) == truth(cluster.scripts, cluster.start_ts)


def test_recording_of_ddl_jobs(tmp_path: Path) -> None:
    """The meta range and the job table during about 60 DDLs become the schema stream, filtered; tables follow from it."""
    cluster = RecordedCluster("ddl_jobs", lambda stream, request: stream == "1" and request.request_id != 3)
    capture(cluster, tmp_path)
    reader = LogReader(tmp_path / "log")
    rows = reader.read_schema(reader.start_ts, reader.schema_head()).to_pylist()
    want = truth(cluster.scripts, cluster.start_ts)
    jobs = [r for r in rows if r["table_id"] == 0xFFFFFFFFFFFE]
    assert len(jobs) == sum(1 for r in want if r[2][:1] == b"t")
    meta = [r for r in rows if r["table_id"] == 0]
    assert 50 < len(meta) < sum(1 for r in want if r[2][:1] == b"m")
    assert not any(b"TID:" in r["key"] or b"DDLJobHi" in r["key"] for r in meta)
    assert verify(tmp_path / "log").is_whole
