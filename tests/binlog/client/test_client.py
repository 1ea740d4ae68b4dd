"""The pump client against Pumps that run: killed, back again, closing, and none at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tests.support.binlog.binlogs import until
from tests.support.binlog.pumps import RunningPump, running_pump
from tidemill.binlog.client.client import PumpClient
from tidemill.binlog.client.options import ClientOptions
from tidemill.binlog.indexkeys import Pointer
from tidemill.binlog.messages import Binlog, BinlogType, read_binlog
from tidemill.binlog.nodes import Node, NodeKind, NodeState
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.errors import UpstreamUnavailable
from tidemill.playground.server import Playground
from tidemill.wire import pump_pb2

QUICK = ClientOptions(write_timeout=5.0, retry_for=0.2, retry_every=0.02, commit_for=5.0, commit_every=0.05, most_errors=2, probe_every=0.1)
PATIENT = replace(QUICK, retry_for=60.0)


def prewrite(ts: int) -> Binlog:
    return Binlog(BinlogType.PREWRITE, ts, 0, b"key", b"\x08\x01")


def commit(ts: int) -> Binlog:
    return Binlog(BinlogType.COMMIT, ts, ts + 1, b"key")


@asynccontextmanager
async def client_of(playground: Playground, options: ClientOptions = QUICK) -> AsyncIterator[PumpClient]:
    pd = await PdClient.connect(playground.pd_address)
    client = PumpClient(pd, options)
    try:
        await client.start()
        yield client
    finally:
        await client.close()
        await pd.close()


async def pulled(pump: RunningPump, count: int) -> list[int]:
    """The commit ts of the first binlogs that are not made by Pump itself."""
    found: list[int] = []
    request = pump_pb2.PullBinlogReq(clusterID=pump.pump.cluster_id, startFrom=pump_pb2.Pos(offset=0))
    call = pump.stub.PullBinlogs(request, timeout=20)
    async for answer in call:
        binlog = read_binlog(answer.entity.payload)
        found += [] if binlog.is_fake else [binlog.commit_ts]
        if len(found) == count:
            break
    call.cancel()
    return found


def run(test: Callable[[Playground], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with Playground() as playground:
            await test(playground)

    asyncio.run(whole())


def test_a_transaction_is_in_one_pump_and_can_be_pulled(tmp_path: Path) -> None:
    async def test(playground: Playground) -> None:
        now = playground.cluster.oracle.next
        async with running_pump(tmp_path / "p", playground) as pump, client_of(playground) as client:
            first, second, third = now(), now(), now()
            for ts in (first, second, third):
                await client.write(prewrite(ts))
            await client.write(commit(first))
            await client.write(Binlog(BinlogType.ROLLBACK, second, 0, b"key"))
            await client.write(commit(third))
            await client.write(commit(now()))  # of nobody's Prewrite: there is nothing to write
            assert await pulled(pump, 2) == [first + 1, third + 1]

    run(test)


def test_without_a_pump_nothing_starts() -> None:
    async def test(playground: Playground) -> None:
        with pytest.raises(UpstreamUnavailable, match=r"no Pump in the registry is online and has the labels zone=1"):
            async with client_of(playground, ClientOptions(labels={"zone": "1"})):
                pass

    run(test)


def test_a_pump_that_ends_is_named_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    async def test(playground: Playground) -> None:
        now = playground.cluster.oracle.next
        async with running_pump(tmp_path / "p", playground) as pump, client_of(playground) as client:
            ts = now()
            await client.write(prewrite(ts))
            await pump.end()
            await until(lambda: client.pumps.online == ())
            with pytest.raises(UpstreamUnavailable, match="no Pump is online"):
                await client.write(prewrite(now()))
            writing = asyncio.ensure_future(client.write(commit(ts)))  # waits for the Pump that has the Prewrite, wherever it is then
            async with running_pump(tmp_path / "p", playground) as again:
                await until(lambda: client.pumps.online != ())
                await writing
                assert await pulled(again, 1) == [ts + 1]

    run(test)


def test_a_commit_does_not_wait_for_a_pump_that_has_gone_offline(caplog: pytest.LogCaptureFixture) -> None:
    """It waits for one that is paused."""

    async def test(playground: Playground) -> None:
        pd = await PdClient.connect(playground.pd_address)
        client = PumpClient(pd, replace(QUICK, commit_for=3600.0))
        client._of[7] = "p"  # has the Prewrite
        client.pumps.look({"p": Node("p", "127.0.0.1:1", NodeState.PAUSED)})
        writing = asyncio.ensure_future(client.write(commit(7)))
        done, _ = await asyncio.wait([writing], timeout=2 * QUICK.commit_every)
        assert not done
        client.pumps.look({"p": Node("p", "127.0.0.1:1", NodeState.OFFLINE)})
        await writing
        assert "is not written, Pump p asks TiKV for it: Pump p has gone offline" in caplog.text
        await client.close()
        await pd.close()

    run(test)


def test_a_dead_pump_is_passed_over_and_probed_until_it_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def test(playground: Playground) -> None:
        now = playground.cluster.oracle.next
        async with running_pump(tmp_path / "p", playground) as pump, client_of(playground, PATIENT) as client:
            failures = [OSError("broken")] * 8
            append = pump.pump.store.log.append

            def failing(records: memoryview, max_ts: int) -> Pointer:
                if failures:
                    raise failures.pop()
                return append(records, max_ts)

            pump.pump.store.log.append = failing  # type: ignore[method-assign]
            ts = now()
            await client.write(prewrite(ts))
            assert client.pumps.available == client.pumps.online
            await client.write(commit(ts))
            assert await pulled(pump, 1) == [ts + 1]

    run(test)
    assert [text for text in caplog.messages if "passed over" in text or "available again" in text] != []


def test_a_call_that_fails_leaves_the_others_of_its_connection_alone() -> None:
    """grpc cancels the calls of a channel that is closed, and that looks like a task that is cancelled."""

    async def test(playground: Playground) -> None:
        slow, fast, asked = playground.cluster.oracle.next(), playground.cluster.oracle.next(), asyncio.Event()
        failed, failures = asyncio.Event(), 1

        async def take(request: pump_pb2.WriteBinlogReq, context: grpc.aio.ServicerContext) -> pump_pb2.WriteBinlogResp:
            nonlocal failures
            if read_binlog(request.payload).start_ts == slow:
                asked.set()
                await failed.wait()
            elif failures:
                failures -= 1
                await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
            return pump_pb2.WriteBinlogResp()

        method = grpc.unary_unary_rpc_method_handler(take, pump_pb2.WriteBinlogReq.FromString, pump_pb2.WriteBinlogResp.SerializeToString)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("binlog.Pump", {"WriteBinlog": method}),))
        node = Node("p", f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", NodeState.ONLINE)
        await server.start()
        playground.etcd.change([(NodeKind.PUMP.key("p").encode(), node.encode(), 0)])
        async with client_of(playground) as client:
            waiting = asyncio.ensure_future(client.write(prewrite(slow)))
            await asked.wait()
            await client.write(prewrite(fast))
            failed.set()
            await waiting
        await server.stop(None)

    run(test)


def test_errors_may_be_ignored_until_somebody_recovers(tmp_path: Path) -> None:
    async def test(playground: Playground) -> None:
        now = playground.cluster.oracle.next
        options = ClientOptions(retry_for=0.05, retry_every=0.01, most_bytes=60, ignore_error=True)
        async with running_pump(tmp_path / "p", playground) as pump, client_of(playground, options) as client:
            large = Binlog(BinlogType.PREWRITE, now(), 0, b"key", b"x" * 100)
            await client.write(large)
            await client.write(prewrite(now()))
            assert (client.skipping, client.skipped) == (True, 2)
            client.recover()
            ts = now()
            await client.write(prewrite(ts))
            await client.write(commit(ts))
            assert await pulled(pump, 1) == [ts + 1]

    run(test)


def test_what_is_too_large_names_its_size(tmp_path: Path) -> None:
    async def test(playground: Playground) -> None:
        async with running_pump(tmp_path / "p", playground), client_of(playground, ClientOptions(most_bytes=10)) as client:
            with pytest.raises(UpstreamUnavailable, match=r"it has \d+ bytes, and 10 are taken at most"):
                await client.write(prewrite(playground.cluster.oracle.next()))

    run(test)
