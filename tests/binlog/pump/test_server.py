"""A whole Pump on a playground: its states, its two services, HTTP beside gRPC, TLS, and Prewrites that nobody commits."""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import hpack
import pytest

from tests.support.binlog.binlogs import commit, prewrite, until
from tests.support.binlog.pumps import RunningPump, free_address, running_pump, set_drainer
from tests.support.servers.certificates import Authority
from tidemill.binlog.http2 import frames
from tidemill.binlog.messages import read_binlog
from tidemill.binlog.nodes import NodeEvent, NodeState
from tidemill.binlog.pump import resolving
from tidemill.binlog.pump.faults import DrainerSilent
from tidemill.binlog.pump.settings import Transport
from tidemill.errors import ConfigError
from tidemill.playground.server import Playground
from tidemill.playground.services.gate import ServerTls
from tidemill.wire import pump_pb2, pump_pb2_grpc


class _Drainer(pump_pb2_grpc.CisternServicer):  # type: ignore[misc]
    """Answers Notify when it is allowed to."""

    def __init__(self) -> None:
        self.asked, self.allowed = asyncio.Event(), asyncio.Event()

    async def Notify(self, request: Any, context: Any) -> Any:
        self.asked.set()
        await self.allowed.wait()
        return pump_pb2.NotifyResp()

    async def start(self) -> tuple[Any, str]:
        server = grpc.aio.server()
        pump_pb2_grpc.add_CisternServicer_to_server(self, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, f"127.0.0.1:{port}"


async def _transaction(running: RunningPump) -> tuple[int, int]:
    """Write a whole transaction; returns start_ts and commit_ts."""
    oracle = running.playground.cluster.oracle
    start_ts = oracle.next()
    await running.write(prewrite(start_ts))
    commit_ts = oracle.next()
    await running.write(commit(start_ts, commit_ts))
    return start_ts, commit_ts


async def _code(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), str(caught.value.details())


@pytest.mark.parametrize("transport", list(Transport))
def test_binlogs_go_in_and_come_out_in_order_also_after_a_restart(transport: Transport, tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground:
            async with running_pump(tmp_path, playground, fake_binlog_interval=60.0, transport=transport) as running:
                stamps = [await _transaction(running) for _ in range(5)]
                found = await running.pull(5)
                assert [(one.meta.startTs, one.meta.commitTs) for one in found] == stamps
                assert read_binlog(found[0].payload).prewrite_value == b"\x08\x01"
                assert [one.meta.commitTs for one in await running.pull(2, stamps[2][1])] == [stamps[3][1], stamps[4][1]]
                following = asyncio.ensure_future(running.pull(1, stamps[4][1]))
                last = await _transaction(running)
                assert [one.meta.commitTs for one in await following] == [last[1]]
                await running.end()
                assert running.states() == [NodeState.PAUSED, NodeState.ONLINE, NodeState.PAUSING, NodeState.PAUSED]
            async with running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
                assert len(await running.pull(6)) == 6

    asyncio.run(run())


def test_large_and_many_binlogs_by_one_connection(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            oracle = playground.cluster.oracle
            starts = [oracle.next() for _ in range(300)]
            sizes = [5_000_000, 1_000_000, 70_000, *([100] * 297)]
            await asyncio.gather(*(running.write(prewrite(ts, bytes(size))) for ts, size in zip(starts, sizes, strict=True)))
            ends = [oracle.next() for _ in starts]
            await asyncio.gather(*(running.write(commit(start, end)) for start, end in zip(starts, ends, strict=True)))
            assert running.pump.store.counts.syncs < 400
            running.channel = grpc.aio.insecure_channel(running.address, options=[("grpc.max_receive_message_length", -1)])
            found = await running.pull(300)
            assert [(one.meta.startTs, one.meta.commitTs) for one in found] == list(zip(starts, ends, strict=True))
            assert [len(read_binlog(one.payload).prewrite_value) for one in found] == sizes

    asyncio.run(run())


def test_a_call_that_is_given_up_as_it_was_sent_leaves_its_connection_alone(tmp_path: Path) -> None:
    """In bytes, all at once: a call that no kernel takes (it is padded), RST_STREAM, and the next call."""

    def call(encoder: hpack.Encoder, stream: int, payload: bytes, cluster: int) -> bytes:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", "/binlog.Pump/WriteBinlog"), (":authority", "p")]
        block = encoder.encode([*fields, ("content-type", "application/grpc"), ("te", "trailers")])
        head = frames.frame(frames.Frame.HEADERS, frames.END_HEADERS | frames.PADDED, stream, b"\x02" + block + bytes(2))
        asked = pump_pb2.WriteBinlogReq(clusterID=cluster, payload=payload).SerializeToString()
        return head + frames.frame(frames.Frame.DATA, frames.END_STREAM | frames.PADDED, stream, b"\0" + frames.prefixed(asked))

    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            start, commit_ts = playground.cluster.oracle.next(), playground.cluster.oracle.next()
            encoder, cluster = hpack.Encoder(), running.pump.cluster_id
            host, _, port = running.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            cancelled = call(encoder, 1, prewrite(start), cluster) + frames.rst_stream(1, frames.Code.CANCEL)
            writer.write(frames.PREFACE + frames.settings({}) + cancelled + call(encoder, 3, commit(start, commit_ts), cluster))
            answer = frames.frame(frames.Frame.DATA, 0, 3, frames.prefixed(b""))
            async with asyncio.timeout(60):
                found = b""
                while answer not in found:
                    got = await reader.read(1 << 16)
                    assert got, "the connection was ended"
                    found += got
            writer.close()
            assert [one.meta.commitTs for one in await running.pull(1, start)] == [commit_ts]

    asyncio.run(run())


@pytest.mark.parametrize("transport", list(Transport))
def test_calls_that_store_nothing(transport: Transport, tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, transport=transport) as running:
            await running.write(b"")  # a probe
            code, text = await _code(running.write(prewrite(1), cluster_id=5))
            assert code is grpc.StatusCode.UNKNOWN
            assert text == f"cluster ID are mismatch, 5 vs {playground.cluster.cluster_id}"
            for payload in (b"\xff\xff\xff\xff", b"\x08", prewrite(1)[:-3]):
                code, _ = await _code(running.write(payload))
                assert code is grpc.StatusCode.UNKNOWN
            pull = running.stub.PullBinlogs(pump_pb2.PullBinlogReq(clusterID=5))
            assert "mismatch" in (await _code(pull.read()))[1]
            assert not running.pump.store.order.open

    asyncio.run(run())


def test_fake_binlogs_let_a_drainer_go_on_without_writes(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground) as running:
            found = await running.pull(3)
            assert all(read_binlog(one.payload).is_fake for one in found)
            assert found[0].meta.commitTs < found[1].meta.commitTs < found[2].meta.commitTs

    asyncio.run(run())


def test_it_is_online_only_after_the_drainers_know_it(tmp_path: Path) -> None:
    async def run() -> None:
        drainer = _Drainer()
        server, host = await drainer.start()
        async with Playground() as playground:
            set_drainer(playground, "d1", host, NodeState.ONLINE)
            set_drainer(playground, "gone", free_address(), NodeState.PAUSED)
            async with running_pump(tmp_path, playground, online=False) as running:
                await drainer.asked.wait()
                assert running.states() == [NodeState.PAUSED]
                code, text = await _code(running.write(prewrite(1)))
                assert (code, text) == (grpc.StatusCode.UNKNOWN, "no online: paused")
                drainer.allowed.set()
                await until(lambda: running.states()[-1] is NodeState.ONLINE)
            await server.stop(0)
            async with running_pump(tmp_path, playground) as running:  # known already: nobody is asked
                assert running.states()[-1] is NodeState.ONLINE

    asyncio.run(run())


def test_a_drainer_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.binlog.pump.joining.CALL_S", 0.05)

    async def run() -> None:
        async with Playground() as playground:
            host = free_address()
            set_drainer(playground, "d1", host, NodeState.ONLINE)
            async with running_pump(tmp_path, playground) as running:
                with pytest.raises(DrainerSilent, match=f"d1 at {host}"):
                    await running.task
                assert running.states() == [NodeState.PAUSED, NodeState.OFFLINE]

    asyncio.run(run())


def test_going_offline_waits_for_transactions_and_drainers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.binlog.pump.server.WAIT_EVERY_S", 0.02)
    monkeypatch.setattr("tidemill.binlog.pump.resolving.ASK_AFTER_S", 3600.0)

    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground) as running:
            oracle = playground.cluster.oracle
            start_ts = oracle.next()
            await running.write(prewrite(start_ts))
            running.drainer("d1", "127.0.0.1:1", NodeState.PAUSED, 5)
            assert (await running.http("PUT", "/state/pump1/close"))[1]["code"] == 200
            await until(lambda: running.states()[-1] is NodeState.CLOSING)
            assert (await _code(running.write(prewrite(oracle.next()))))[1] == "no online: closing"
            await running.write(commit(start_ts, oracle.next()))  # Commits are taken
            await until(lambda: running.pump.waits_for == ("d1",))
            assert (await running.http("GET", "/status"))[1]["WaitsForDrainers"] == ["d1"]
            running.drainer("d1", "127.0.0.1:1", NodeState.PAUSED, 1 << 62)
            await running.task
            assert running.states()[-2:] == [NodeState.CLOSING, NodeState.OFFLINE]

    asyncio.run(run())


def test_http_is_on_the_same_port(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            running.drainer("d1", "h:1", NodeState.PAUSED, 9)
            start_ts, commit_ts = await _transaction(running)
            await running.pull(1)
            status = (await running.http("GET", "/status"))[1]
            assert list(status)[:4] == ["status", "CommitTS", "Checkpoint", "ErrMsg"]
            assert status["status"]["pump1"]["maxCommitTS"] == commit_ts < status["CommitTS"]
            assert (status["ErrMsg"], status["HeldBy"]) == ("", None)
            assert [node["nodeId"] for node in (await running.http("GET", "/drainers"))[1]] == ["d1"]
            code, metrics = await running.http("GET", "/metrics")
            assert code == 200
            assert f"binlog_pump_storage_max_commit_ts {float(commit_ts)}" in metrics
            page = (Path(__file__).parents[3] / "docs" / "binlog" / "pump.md").read_text(encoding="utf-8")
            told = {line.split()[2] for line in metrics.splitlines() if line.startswith("# TYPE")}
            assert told == set(re.findall(r"\| `(binlog_pump_\w+)` \|", page))
            shown = (await running.http("GET", f"/debug/binlog/{commit_ts}"))[1]
            assert (shown["tp"], shown["start_ts"]) == ("Commit", start_ts)
            assert (await running.http("GET", "/debug/binlog/1"))[1] == "fail read binlog by ts: 1: leveldb: not found"
            refused = (await running.http("PUT", "/state/nosuch/pause"))[1]
            assert refused == {"message": "invalide nodeID nosuch, this pump's nodeID is pump1", "code": 3, "data": None}
            assert (await running.http("PUT", "/state/pump1/dance"))[1]["code"] == 3
            assert (await running.http("GET", "/nothing"))[0] == 404
            assert (await running.http("POST", "/debug/gc/trigger"))[0] == 200
            host, _, port = running.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"\x00\x01\x02\r\n\r\n")
            assert b"400" in await reader.read()
            writer.close()
            assert (await running.http("PUT", "/state/pump1/pause"))[1]["code"] == 200
            await running.task
            assert running.states()[-2:] == [NodeState.PAUSING, NodeState.PAUSED]

    asyncio.run(run())


def test_a_full_disk_stops_prewrites_and_lets_commits_through(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground) as running:
            oracle = playground.cluster.oracle
            start_ts = oracle.next()
            await running.write(prewrite(start_ts))
            running.pump.space = -1
            for payload in (prewrite(oracle.next()), b""):
                assert (await _code(running.write(payload)))[1] == "no available space, available: -1, StopWriteAtAvailableSpace: 0"
            commit_ts = oracle.next()
            await running.write(commit(start_ts, commit_ts))
            assert any(one.meta.commitTs == commit_ts for one in await running.pull(1, commit_ts - 1))

    asyncio.run(run())


@pytest.mark.parametrize("ending", ["committed", "rolled back", "given up"])
def test_tikv_tells_how_a_prewrite_ended(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "ASK_AFTER_S", 0.0)
    monkeypatch.setattr("tidemill.binlog.pump.server.RESOLVE_EVERY_S", 0.02)

    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground, fake_binlog_interval=60.0) as running:
            cluster, key = playground.cluster, b"mDB:1 some key"
            pending = cluster.prewrite([(key, b"value")], ttl_ms=0)
            await running.write(prewrite(pending.start_ts, key=key))
            await until(lambda: running.pump.resolver.answer)
            held = (await running.http("GET", "/status"))[1]["HeldBy"]
            assert held["StartTS"] == pending.start_ts
            assert "neither" in held["TiKV"]
            if ending == "committed":
                commit_ts = cluster.commit(pending)
                (found,) = await running.pull(1)
                assert (found.meta.startTs, found.meta.commitTs) == (pending.start_ts, commit_ts)
                return
            if ending == "rolled back":
                cluster.rollback(pending)
            else:
                monkeypatch.setattr(resolving, "GIVE_UP_MS", 0)
            await until(lambda: not running.pump.store.order.open)
            if ending == "given up":
                assert (key, pending.start_ts) in cluster.mvcc.rolled_back
            _, commit_ts = await _transaction(running)
            assert [one.meta.commitTs for one in await running.pull(1)] == [commit_ts]

    asyncio.run(run())


def test_tls_with_allowed_common_names(tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    own, other = authority.sign("tidb"), authority.sign("stranger")
    certificate, key = own.write(tmp_path, "own")
    settings = {"ssl_ca": str(ca), "ssl_cert": str(certificate), "ssl_key": str(key), "cert_allowed_cn": ("tidb",)}

    async def run() -> None:
        tls = ServerTls(own.certificate, own.key, authority.pem)
        async with Playground(tls=tls) as playground:
            good = grpc.ssl_channel_credentials(authority.pem, own.key, own.certificate)
            urls = f"https://{playground.pd_address}"
            async with running_pump(tmp_path / "data", playground, credentials=good, pd_urls=urls, **settings) as running:
                start_ts, commit_ts = await _transaction(running)
                assert [one.meta.startTs for one in await running.pull(1, commit_ts - 1)] == [start_ts]
                context = ssl.create_default_context(cafile=str(ca))
                context.load_cert_chain(certificate, key)
                assert (await running.http("GET", "/status", context))[0] == 200
                bad = grpc.ssl_channel_credentials(authority.pem, other.key, other.certificate)
                async with grpc.aio.secure_channel(running.address, bad) as channel:
                    stub = pump_pb2_grpc.PumpStub(channel)
                    code, _ = await _code(stub.WriteBinlog(pump_pb2.WriteBinlogReq(clusterID=running.pump.cluster_id), timeout=2))
                    assert code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

    asyncio.run(run())


def test_a_taken_address_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground:
            taken = {"addr": playground.pd_address, "advertise_addr": "127.0.0.1:1"}
            async with running_pump(tmp_path, playground, **taken) as running:
                with pytest.raises(ConfigError, match="--addr"):
                    await running.task

    asyncio.run(run())


def test_pausing_twice_is_fine(tmp_path: Path) -> None:
    async def run() -> None:
        async with Playground() as playground, running_pump(tmp_path, playground) as running:
            running.pump.ask(NodeEvent.FINISHED)  # nothing is to be finished
            running.pump.ask(NodeEvent.PAUSE)
            await running.end()

    asyncio.run(run())
