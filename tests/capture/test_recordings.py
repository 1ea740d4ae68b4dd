"""Recordings of a real TiKV, served again to a whole capture: its committed rows arrive in the log, once each. With both transports, with
TLS and without: `make test` plays some in each of the four ways, the others in one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from tests.support.capture import eventfeeds
from tests.support.capture.captures import caught_up, log_changes, running
from tests.support.capture.eventfeeds import RECORDINGS, Emitted, recorded_messages
from tests.support.capture.recorded import RecordedCluster, Select, refusals, truth
from tests.support.servers.certificates import Authority
from tidemill.capture.config import CaptureConfig
from tidemill.capture.tikv.feed.base import Transport
from tidemill.changelog.reader import LogReader
from tidemill.changelog.verify import verify
from tidemill.errors import TidemillError
from tidemill.events import Op
from tidemill.playground.services.gate import ServerTls
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
    "ticdc_wire": (lambda stream, request: stream == "42800->23160/3" and request.checkpoint_ts == 470616866508505089, 4),
    "large_txn": (only(("1", 1)), 8000),
    "large_txn as a scan": (only(("2", 2)), 8000),
}
"""Recording: which recorded registers are played, and how many rows they commit."""

PLAIN: dict[str, Select] = {"feed_v2": only(("30", 2)), "partitions": CASES["partitions"][0]}
"""Recordings that are played by a store without EventFeedV2."""

NO_FEED = {"pd_calls", "meta_read", "pd9_gc_barriers"}
"""Recordings without any change feed: test_requests.py plays them."""

WIRES = [(transport, secure) for secure in (False, True) for transport in (Transport.H2, Transport.GRPC)]
ANOTHER_WIRE = pytest.mark.thorough(
    "the same recording in another way: what the ways have of their own, the recordings of IN_EACH_WAY show"
)
IN_EACH_WAY = {"live_2pc", "not_leader", "store_restart"}
"""Rows, an error for a region, a stream that breaks."""
REFUSED_IN_EACH_WAY = {"cluster id mismatch"}


def in_each_way(names: Iterable[str], chosen: Collection[str] = ()) -> pytest.MarkDecorator:
    """Parameters `name`, `transport` and `secure`: each name in the first way, the chosen names in the others too."""
    return pytest.mark.parametrize(
        ("name", "transport", "secure"),
        [
            pytest.param(
                name,
                *wire,
                id=f"{name}-{wire[0].value}-{'tls' if wire[1] else 'open'}",
                marks=[] if wire == WIRES[0] or name in chosen else [ANOTHER_WIRE],
            )
            for name in names
            for wire in WIRES
        ],
    )


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ServerTls, Path]:
    """What a server needs, and the authority's certificate for its clients."""
    authority = Authority()
    ca = tmp_path_factory.mktemp("tls") / "ca.pem"
    ca.write_bytes(authority.pem)
    pair = authority.sign("server")
    return ServerTls(pair.certificate, pair.key), ca


def capture(cluster: RecordedCluster, folder: Path, transport: Transport = Transport.H2, ca: Path | None = None) -> list[Emitted]:
    """Run a capture of the recorded cluster until it is caught up; compare the log's rows with what was played."""

    async def main() -> None:
        async with asyncio.timeout(600), cluster:
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


def test_every_recording_is_played() -> None:
    played = {name.partition(" ")[0] for name in CASES} | PLAIN.keys() | {"ddl_jobs", "bad_requests"}
    assert played | NO_FEED == {path.name.removesuffix(".jsonl.gz") for path in RECORDINGS.glob("*.jsonl.gz")}
    assert not any(recorded_messages(name) for name in NO_FEED)


@pytest.mark.slow
@in_each_way(CASES, IN_EACH_WAY)
def test_recording(name: str, transport: Transport, secure: bool, tls: tuple[ServerTls, Path], tmp_path: Path) -> None:
    select, rows_of_it = CASES[name]
    cluster = RecordedCluster(name.partition(" ")[0], select, tls=tls[0] if secure else None)
    rows = capture(cluster, tmp_path, transport, tls[1] if secure else None)
    assert rows == truth(cluster.scripts, cluster.start_ts)
    assert len(rows) == rows_of_it
    assert cluster.waiting == [], "every recorded register was asked for"
    assert verify(tmp_path / "log").is_whole


@in_each_way(PLAIN)
def test_recording_of_a_store_without_event_feed_v2(
    name: str, transport: Transport, secure: bool, tls: tuple[ServerTls, Path], tmp_path: Path
) -> None:
    cluster = RecordedCluster(name, PLAIN[name], plain=True, tls=tls[0] if secure else None)
    assert capture(cluster, tmp_path, transport, tls[1] if secure else None) == truth(cluster.scripts, cluster.start_ts)


FATAL = {"cluster id mismatch": "TM:ErrClusterMismatch", "cluster id 0": "TM:ErrClusterMismatch"}
FATAL |= dict.fromkeys(("kv_api RawKV", "kv_api TxnKV"), "TM:ErrVersionTooOld")


@pytest.mark.slow
@in_each_way(refusals(), REFUSED_IN_EACH_WAY)
def test_recording_of_bad_requests(name: str, transport: Transport, secure: bool, tls: tuple[ServerTls, Path], tmp_path: Path) -> None:
    """The first register of a table gets the recorded error: a fatal one ends the capture with its message, others cost only another
    register."""
    cluster = RecordedCluster("scan_past", CASES["scan_past"][0], tls=tls[0] if secure else None, refusal=refusals()[name])
    ca = tls[1] if secure else None
    if name in FATAL:
        with pytest.raises(TidemillError) as raised:
            capture(cluster, tmp_path, transport, ca)
        assert raised.value.code == FATAL[name]
    else:
        assert capture(cluster, tmp_path, transport, ca) == truth(cluster.scripts, cluster.start_ts)
        asked = [r for r in cluster.registers if r.region_id == cluster.scripts[0].request.region_id]
        assert len(asked) == 2


@pytest.mark.skipif("MATERIAL" not in os.environ, reason="make recordings MATERIAL=…: the whole recording is 86 MB of messages")
@in_each_way(["1", "2"])
def test_the_whole_large_transaction(
    name: str, transport: Transport, secure: bool, tls: tuple[ServerTls, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventfeeds, "RECORDINGS", Path(os.environ["MATERIAL"]) / "golden" / "tikv" / "recordings")
    eventfeeds.recording.cache_clear()
    try:
        cluster = RecordedCluster("large_txn", only((name, int(name))), tls=tls[0] if secure else None)
        rows = capture(cluster, tmp_path, transport, tls[1] if secure else None)
        assert rows == truth(cluster.scripts, cluster.start_ts)
        assert len(rows) == 130_000
    finally:
        eventfeeds.recording.cache_clear()


@pytest.mark.slow
@in_each_way(["ddl_jobs"])
def test_recording_of_ddl_jobs(name: str, transport: Transport, secure: bool, tls: tuple[ServerTls, Path], tmp_path: Path) -> None:
    """The meta range and the job table during about 60 DDLs become the schema stream, filtered; tables follow from it."""
    chosen: Select = lambda stream, request: stream == "1" and request.request_id != 3  # noqa: E731
    cluster = RecordedCluster(name, chosen, tls=tls[0] if secure else None)
    capture(cluster, tmp_path, transport, tls[1] if secure else None)
    reader = LogReader(tmp_path / "log")
    rows = reader.read_schema(reader.start_ts, reader.schema_head()).to_pylist()
    want = truth(cluster.scripts, cluster.start_ts)
    jobs = [r for r in rows if r["table_id"] == 0xFFFFFFFFFFFE]
    assert len(jobs) == sum(1 for r in want if r[2][:1] == b"t")
    meta = [r for r in rows if r["table_id"] == 0]
    assert 50 < len(meta) < sum(1 for r in want if r[2][:1] == b"m")
    assert not any(b"TID:" in r["key"] or b"DDLJobHi" in r["key"] for r in meta)
    assert verify(tmp_path / "log").is_whole
