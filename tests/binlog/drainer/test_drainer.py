"""A Drainer between the playground's PD and TiKV and Pumps of the test."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.binlog.binlogs import until
from tests.support.binlog.fake_pumps import BEGIN, PumpWorld, inserted, world
from tidemill.binlog.drainer.destination import Forms
from tidemill.binlog.drainer.drainer import Drainer
from tidemill.binlog.drainer.savepoint import Position, Savepoint
from tidemill.binlog.drainer.settings import Downstream, DrainerSettings
from tidemill.binlog.http2.frames import PREFACE, Frame, frame
from tidemill.binlog.messages import Binlog, MutationType, Prewritten, TableMutation, fake, read_prewritten
from tidemill.binlog.nodes import Node, NodeEvent, NodeKind, NodeState
from tidemill.binlog.outputs.frames import payloads
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.errors import ClusterMismatch, SchemaError
from tidemill.playground.server import Playground
from tidemill.tidb.datums import Datum, DatumFlag, encode_datum
from tidemill.wire import pb_binlog_pb2, pump_pb2

PAGE = Path(__file__).parents[3] / "docs/binlog/drainer.md"


def marked(binlog: Binlog, channel: int) -> Binlog:
    """A transaction that a Drainer made, of this channel."""

    def row(value: int) -> bytes:
        pairs = ((1, 0), (2, channel), (3, value))
        return b"".join(encode_datum(Datum(DatumFlag.VARINT, number)) for pair in pairs for number in pair)

    mark = TableMutation(51, updated=(row(1) + row(2),), sequence=(MutationType.UPDATE,))
    found = read_prewritten(binlog.prewrite_value)
    return replace(binlog, prewrite_value=Prewritten(1, (*found.mutations, mark)).encode())


class World(PumpWorld):
    """The playground, Pumps, and a Drainer that writes files."""

    def __init__(self, folder: Path, playground: Playground, pd: PdClient) -> None:
        super().__init__(folder, playground, pd)
        self.more: dict[str, Any] = {}
        self.drainer = self.make()

    def make(self) -> Drainer[Any]:
        to = Downstream(dir=str(self.folder / "out"))
        address = self.playground.pd_address
        data = str(self.folder / "data")
        settings = DrainerSettings("127.0.0.1:0", "127.0.0.1:1", f"http://{address}", data, "d1", 60.0, BEGIN, db_type="file", to=to)
        settings = replace(settings, **self.more)
        return Drainer(settings, Forms(settings))

    def stamps(self) -> list[int]:
        """The commit ts in the files."""
        found = []
        for path in sorted((self.folder / "out").glob("binlog-*")):
            found += [pb_binlog_pb2.Binlog.FromString(payload).commit_ts - BEGIN for payload in payloads(path.read_bytes(), path.name)]
        return found

    async def own(self) -> Node | None:
        return await self.registry.get(NodeKind.DRAINER, "d1")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Drainer[Any]]:
        """A Drainer from its start until it has paused."""
        self.drainer = self.make()
        task = asyncio.ensure_future(self.drainer.run())
        try:
            await until(lambda: self.drainer.address or task.done())
            yield self.drainer
            self.drainer.ask(NodeEvent.PAUSE)
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def run(test: Callable[[World], object], folder: Path) -> None:
    async def whole() -> None:
        async with world(folder, World) as made:
            await test(made)  # type: ignore[misc]

    asyncio.run(whole())


def test_two_pumps_are_merged_and_a_restart_goes_on_where_the_drainer_paused(tmp_path: Path) -> None:
    async def test(w: World) -> None:
        one = await w.pump("p1", inserted(BEGIN + 10, 1), inserted(BEGIN + 40, 4), fake(BEGIN + 50))
        two = await w.pump("p2", inserted(BEGIN + 20, 2), inserted(BEGIN + 30, 3), fake(BEGIN + 60))
        async with w.running() as drainer:
            await until(lambda: drainer.done_ts == BEGIN + 50)
            assert w.stamps() == [10, 20, 30, 40]
        assert one.asked == two.asked == [BEGIN]
        node = await w.own()
        assert node is not None
        assert (node.state, node.max_commit_ts) == (NodeState.PAUSED, BEGIN + 50)
        assert Savepoint(tmp_path / "data").load() == Position(BEGIN + 50, 0, consistent=True)
        one.give(inserted(BEGIN + 70, 7), fake(BEGIN + 80))
        two.give(fake(BEGIN + 90))
        async with w.running() as drainer:
            await until(lambda: drainer.done_ts == BEGIN + 80)
        assert w.stamps() == [10, 20, 30, 40, 70]
        assert one.asked == [BEGIN, BEGIN + 50]

    run(test, tmp_path)


def test_a_silent_pump_is_named_and_a_pump_that_goes_offline_releases_the_merge(tmp_path: Path) -> None:
    async def test(w: World) -> None:
        await w.pump("busy", inserted(BEGIN + 10, 1), fake(BEGIN + 20))
        silent = await w.pump("silent")
        async with w.running() as drainer:
            await until(lambda: silent.asked and drainer.status()["PumpPos"].get("busy") == BEGIN + 20)
            held = drainer.status()["HeldBy"]
            assert (held["Pump"], held["TS"]) == ("silent", BEGIN)
            assert held["LagSeconds"] > 0
            holds = {s.labels["nodeID"]: s.value for s in drainer.samples() if s.name.endswith("pump_holds")}
            assert holds == {"busy": 0.0, "silent": 1.0}
            assert {s.name for s in drainer.samples()} == set(
                re.findall(r"^\| `(binlog_drainer_\w+|tidemill_drainer_missed_rows)(?:_total)?`", PAGE.read_text(), re.MULTILINE)
            )
            assert w.stamps() == []
            await w.state(silent, NodeState.OFFLINE)
            await until(lambda: drainer.done_ts == BEGIN + 20)
            assert w.stamps() == [10]

    run(test, tmp_path)


def test_a_new_pump_is_pulled_from_before_its_notify_is_answered(tmp_path: Path) -> None:
    async def test(w: World) -> None:
        one = await w.pump("p1", inserted(BEGIN + 7, 1))
        async with w.running() as drainer:
            await until(lambda: drainer.done_ts == BEGIN + 7)
            three = await w.pump("p3", inserted(BEGIN + 8, 2), inserted(BEGIN + 12, 3), register=False)
            await w.state(three, NodeState.PAUSED)
            async with grpc.aio.insecure_channel(drainer.address) as channel:
                call = channel.unary_unary("/binlog.Cistern/Notify", pump_pb2.NotifyReq.SerializeToString, pump_pb2.NotifyResp.FromString)
                await call(pump_pb2.NotifyReq())
            assert "p3" in drainer.status()["PumpPos"]
            one.give(inserted(BEGIN + 9, 4), fake(BEGIN + 12))
            await until(lambda: drainer.done_ts == BEGIN + 12)
            assert w.stamps() == [7, 8, 9, 12]

    run(test, tmp_path)


def test_a_stranger_has_few_calls_and_no_length_of_thousands_of_digits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def asked(address: str, sent: bytes, wanted: bytes) -> None:
        host, _, number = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(number))
        writer.write(sent)
        await asyncio.wait_for(reader.readuntil(wanted), 60)
        writer.close()

    async def test(w: World) -> None:
        await w.pump("p1", inserted(BEGIN + 7, 1))
        async with w.running() as drainer:
            most_calls = b"\0\3" + (16).to_bytes(4, "big")  # SETTINGS_MAX_CONCURRENT_STREAMS
            await asked(drainer.address, PREFACE + frame(Frame.SETTINGS, 0, 0, b""), most_calls)
            head = f"GET /status HTTP/1.1\r\nHost: {drainer.address}\r\nContent-Length: {'9' * 5000}\r\n\r\n"
            await asked(drainer.address, head.encode(), b" 413 ")
        assert "data_received" not in caplog.text

    run(test, tmp_path)


def test_a_broken_stream_loses_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.binlog.drainer.pulling.RETRY_S", 0.01)

    async def test(w: World) -> None:
        pump = await w.pump("p1", *(inserted(BEGIN + n, n) for n in range(1, 20)))
        pump.breaks = 8
        async with w.running() as drainer:
            await until(lambda: drainer.done_ts == BEGIN + 19)
            assert w.stamps() == list(range(1, 20))
            assert len(pump.asked) > 4

    run(test, tmp_path)


def test_rows_of_a_table_that_nobody_knows_stop_the_drainer_with_its_id(tmp_path: Path) -> None:
    async def test(w: World) -> None:
        await w.pump("p1", inserted(BEGIN + 1, 1), inserted(BEGIN + 2, 2, table_id=99))
        with pytest.raises(SchemaError, match="table 99"):
            async with w.running():
                await until(lambda: not w.drainer.alive)
        node = await w.own()
        assert node is not None
        assert node.state is NodeState.PAUSED

    run(test, tmp_path)


def test_a_pump_of_another_cluster_stops_the_drainer(tmp_path: Path) -> None:
    async def test(w: World) -> None:
        await w.pump("p1", cluster_id=7)
        with pytest.raises(ClusterMismatch, match="p1"):
            async with w.running():
                await until(lambda: not w.drainer.alive)

    run(test, tmp_path)


@pytest.mark.parametrize(
    ("settings", "want"), [({}, [10, 20, 30]), ({"loopback_control": True, "channel_id": 5, "do_schemas": ("test",)}, [10, 30])]
)
def test_what_a_drainer_of_the_own_channel_wrote_does_not_go_back(tmp_path: Path, settings: dict[str, Any], want: list[int]) -> None:
    async def test(w: World) -> None:
        w.more = settings
        binlogs = inserted(BEGIN + 10, 1), marked(inserted(BEGIN + 20, 2), 5), marked(inserted(BEGIN + 30, 3), 6)
        await w.pump("p1", *binlogs, fake(BEGIN + 40))
        async with w.running() as drainer:
            await until(lambda: drainer.done_ts == BEGIN + 40)
        assert w.stamps() == want

    run(test, tmp_path)
