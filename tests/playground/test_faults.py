"""What may go wrong in a playground: connections at a gate, PD members and their elections, stores, subscriptions; orphan locks, dumps."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from tests.support.capture.captures import until
from tests.support.capture.loops import run
from tests.support.servers.certificates import Authority
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security
from tidemill.errors import SqlError, UpstreamUnavailable
from tidemill.playground.control import call
from tidemill.playground.faults import REGION_ERRORS
from tidemill.playground.server import Playground
from tidemill.playground.services.gate import Fault, FrameEnds, Gate, ServerTls
from tidemill.playground.services.members import Members
from tidemill.playground.store.mvcc import LockKind
from tidemill.tidb.keys import record_key
from tidemill.wire import cdcpb_pb2 as cdcpb
from tidemill.wire import pdpb_pb2 as pdpb
from tidemill.wire import pdpb_pb2_grpc

# frames and gates


def frame(size: int, kind: int = 0) -> bytes:
    return size.to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + b"x" * size


@pytest.mark.parametrize("step", [1, 3, 9, 10, 64, 1000])
def test_ends_of_frames_are_found_however_the_bytes_come(step: int) -> None:
    frames = [frame(n) for n in (0, 1, 17, 0, 200, 5)]
    stream = b"".join(frames)
    wanted = [sum(map(len, frames[: i + 1])) for i in range(len(frames))]
    ends, found = FrameEnds(), []
    for at in range(0, len(stream), step):
        found += [at + end for end in ends.take(stream[at : at + step])]
    assert found == wanted


class Echo:
    """A gate before a server that answers whatever it gets with frames."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def __aenter__(self) -> Echo:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.gate.target = self._server.sockets[0].getsockname()[1]
        self.port = await self.gate.open("127.0.0.1")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gate.close()
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(2):
            writer.write(frame(struct.unpack(">H", size)[0]))
        writer.close()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await until(lambda: self.gate.connections > 0)
        return reader, writer


def ask(writer: asyncio.StreamWriter, size: int) -> None:
    writer.write(struct.pack(">H", size))


def test_a_gate_passes_bytes_on() -> None:
    async def work() -> None:
        async with Echo() as echo:
            reader, writer = await echo.open()
            for size in (0, 5, 60_000):
                ask(writer, size)
                assert await reader.readexactly(9 + size) == frame(size)
            writer.close()
            await until(lambda: echo.gate.connections == 0)

    run(work())


def test_a_reset_is_seen_as_one() -> None:
    async def work() -> None:
        async with Echo() as echo:
            reader, _ = await echo.open()
            assert echo.gate.strike(Fault.RESET) == 1
            with pytest.raises(ConnectionResetError):
                await reader.read(1)

    run(work())


def test_a_cut_ends_a_connection_inside_a_frame() -> None:
    async def work() -> None:
        async with Echo() as echo:
            reader, writer = await echo.open()
            echo.gate.strike(Fault.CUT)
            ask(writer, 1000)
            got = await reader.read()
            assert 0 < len(got) < 1009
            assert FrameEnds().take(got) == []

    run(work())


def test_goaway_comes_between_two_frames_and_the_end_behind_it() -> None:
    async def work() -> None:
        async with Echo() as echo:
            reader, writer = await echo.open()
            echo.gate.strike(Fault.GOAWAY)
            ask(writer, 10)
            assert await reader.readexactly(19) == frame(10)
            head = await reader.readexactly(9)
            assert head[3] == 7
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            assert payload[8:] == b"graceful shutdown"
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)

    run(work())


def test_a_stall_holds_bytes_back_and_loses_none() -> None:
    async def work() -> None:
        async with Echo() as echo:
            reader, writer = await echo.open()
            echo.gate.strike(Fault.STALL, 0.3)
            ask(writer, 5)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.1)
            assert await reader.readexactly(14) == frame(5)

    run(work())


def test_a_gate_that_refuses_lets_nobody_in_for_a_while() -> None:
    async def work() -> None:
        async with Echo() as echo:
            echo.gate.strike(Fault.REFUSE, 0.3)
            reader, _ = await asyncio.open_connection("127.0.0.1", echo.port)
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            await asyncio.sleep(0.4)
            reader, writer = await echo.open()
            ask(writer, 1)
            assert await reader.readexactly(10) == frame(1)

    run(work())


# PD


def test_members_elect_only_with_a_majority_up() -> None:
    now = [0.0]
    members = Members(3, lambda: now[0], cold_s=1.0)
    members.all[1].up = False
    members.resign(1)
    assert members.leading is None
    assert members.elect()
    assert members.leader == 2
    assert members.is_cold(3)
    assert not members.is_cold(4)
    now[0] = 2.0
    assert not members.is_cold(3)
    members.all[2].up = False
    members.resign(2)
    assert not members.elect(3)
    members.all[1].up = True
    assert members.elect(3)
    assert members.leader == 3


def test_followers_refuse_and_the_leader_changes() -> None:
    async def work() -> None:
        async with Playground(1, pds=3) as playground:
            addresses = playground.pd_address.split(",")
            assert len(set(addresses)) == 3
            client = await PdClient.connect(playground.pd_address)
            first = await client.tso()
            assert client.leader == addresses[0]
            async with grpc.aio.insecure_channel(addresses[1]) as channel:
                stub = pdpb_pb2_grpc.PDStub(channel)
                members = await stub.GetMembers(pdpb.GetMembersRequest())
                assert members.leader.client_urls == [f"http://{addresses[0]}"]
                assert len(members.members) == 3
                header = pdpb.RequestHeader(cluster_id=playground.cluster.cluster_id)
                with pytest.raises(grpc.aio.AioRpcError, match="not leader"):
                    await stub.GetAllStores(pdpb.GetAllStoresRequest(header=header))
            playground.control.run({"command": "pd-leader", "member": 2})
            await until(lambda: playground.members.leader == 2)
            assert await client.tso() > first
            assert client.leader == addresses[1]
            await client.close()

    run(work())


def test_pd_members_come_back_and_calls_outlive_it() -> None:
    async def work() -> None:
        async with Playground(1, pds=3) as playground:
            client = await PdClient.connect(playground.pd_address)
            before = await client.tso()
            playground.control.run({"command": "restart-pd", "all": True, "seconds": 0.3})
            await until(lambda: playground.members.leader == 0)
            assert await client.tso() > before
            await until(lambda: all(m.up for m in playground.members.all.values()))
            playground.control.run({"command": "restart-pd", "seconds": 0.2})
            await until(lambda: not all(m.up for m in playground.members.all.values()))
            assert await client.stores()
            await until(lambda: all(m.up for m in playground.members.all.values()))
            await client.close()

    run(work())


def test_what_shares_a_port_does_not_restart_alone() -> None:
    async def work() -> None:
        async with Playground(1, stores=2) as playground:
            answer = playground.control.run({"command": "restart-pd"})
            assert "shares its port" in answer["message"]
            answer = playground.control.run({"command": "restart-store", "store": 1})
            assert "shares its port" in answer["message"]
            answer = playground.control.run({"command": "wire", "fault": "reset"})
            assert "gates" in answer["message"]
            answer = playground.control.run({"command": "wire", "fault": "sneeze"})
            assert not answer["ok"]

    run(work())


# stores and subscriptions


def test_a_store_is_away_for_a_while() -> None:
    async def work() -> None:
        async with Playground(1, stores=2, pds=1, gates=True) as playground:
            address = playground.cluster.stores[2].address
            playground.control.run({"command": "restart-store", "store": 2, "seconds": 0.2})
            await until(lambda: not reachable(address))
            await until(lambda: reachable(address))
            assert playground.cluster.stores[2].address == address

    run(work())


def reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.parametrize("name", REGION_ERRORS)
def test_errors_of_subscriptions_are_named_as_in_the_protocol(name: str) -> None:
    region = next(iter(Playground(1).cluster.regions))
    error = REGION_ERRORS[name](region)
    wanted = {"no_leader": "not_leader"}.get(name, name)
    assert [field.name for field, _ in error.ListFields()] == [wanted]
    if name == "no_leader":
        assert not error.not_leader.HasField("leader")
    assert cdcpb.Error.FromString(error.SerializeToString()) == error


def test_stores_are_busy_for_a_while_only() -> None:
    async def work() -> None:
        async with Playground(1) as playground:
            limits = playground.cluster.feeds.limits
            usual = limits.pending_scans
            playground.control.run({"command": "busy", "scans": 0, "seconds": 0.1})
            assert limits.pending_scans == 0
            await until(lambda: limits.pending_scans == usual)

    run(work())


# the control over TLS


def test_control_over_mutual_tls(tmp_path: Path) -> None:
    authority = Authority()
    server, client = authority.sign("server"), authority.sign("client")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    security = Security(ca, *client.write(tmp_path, "client"))

    async def work() -> None:
        tls = ServerTls(server.certificate, server.key, authority.pem)
        async with Playground(1, tls=tls, gates=True, pds=1) as playground:
            asked = asyncio.to_thread(call, playground.pd_address, "stats", credentials=security.credentials())
            stats = await asked
            assert stats["control"] == playground.control_port.address
            stats = await asyncio.to_thread(call, stats["control"], "stats", credentials=security.credentials())
            assert stats["pd_leader"] == playground.pd_address
            stranger = Security(ca).credentials()
            with pytest.raises(UpstreamUnavailable):
                await asyncio.to_thread(call, playground.pd_address, "stats", credentials=stranger, timeout=5.0)
            found = await PdClient.connect(playground.pd_address, security=security)
            assert (await found.stores())[0].address == playground.cluster.stores[1].address
            await found.close()

    run(work())


# orphans and dumps


@pytest.mark.parametrize(
    ("async_commit", "primary", "stays"),
    [(False, "locked", False), (False, "committed", True), (False, "rolled-back", False), (True, "locked", True)],
)
def test_orphan_locks_end_as_their_transaction_did(async_commit: bool, primary: str, stays: bool) -> None:
    playground = Playground(1)
    playground.execute("create table t (id int primary key, v int); insert into t values (1, 1), (2, 2)")
    cluster = playground.cluster
    request = {"command": "lock", "table": "test.t", "handles": [1, 2], "ttl_ms": 0, "async_commit": async_commit, "primary": primary}
    start_ts = playground.control.run(request)["start_ts"]
    assert cluster.resolve_orphans() == (2 if primary == "locked" else 1)
    assert not cluster.mvcc.locks
    table = next(t for t in playground.database.catalog.tables.values() if t.name == "t")
    committed = [cluster.mvcc.committed_at(record_key(table.id, h), start_ts) for h in (1, 2)]
    assert [c > 0 for c in committed] == [stays, stays]
    assert len(set(committed)) == 1


def test_a_lock_whose_time_is_not_over_stays() -> None:
    playground = Playground(1)
    playground.execute("create table t (id int primary key); insert into t values (1)")
    playground.control.run({"command": "lock", "table": "test.t", "handles": [1], "ttl_ms": 3_600_000, "kind": "pessimistic"})
    assert playground.cluster.resolve_orphans() == 0
    [lock] = playground.cluster.mvcc.locks.values()
    assert lock.kind is LockKind.PESSIMISTIC


def test_a_dump_shows_what_was_collected_too(tmp_path: Path) -> None:
    playground = Playground(1)
    playground.execute("create table t (id int primary key, v int); insert into t values (1, 1), (2, 2)")
    playground.execute("update t set v = 5 where id = 1; delete from t where id = 2")
    playground.control.run({"command": "gc", "life_time_ms": 0, "remember": True})
    path = tmp_path / "dump.arrow"
    assert playground.control.run({"command": "dump", "path": str(path)})["ok"]
    table = next(t for t in playground.database.catalog.tables.values() if t.name == "t")
    with pa.memory_map(str(path)) as file:
        rows = [r for r in pa.ipc.open_file(file).read_all().to_pylist() if r["table_id"] == table.id]
    assert [(r["key"][-1], r["value"] is None) for r in rows] == [(1, False), (1, False), (2, False), (2, True)]
    assert all(r["commit_ts"] > r["start_ts"] for r in rows)
    assert not playground.execute("select * from t where id = 2").rows


# what comes back


def test_what_was_dropped_comes_back_once(tmp_path: Path) -> None:
    playground = Playground(1)
    run_sql = playground.execute
    run_sql("create database d; create table d.t (id int primary key auto_increment, v int); insert into d.t (v) values (1), (2)")
    before = next(t.id for t in playground.database.catalog.tables.values() if t.name == "t")
    run_sql("drop table d.t")
    with pytest.raises(SqlError):
        run_sql("select * from d.t")
    run_sql("flashback table d.t to u; insert into d.u (v) values (3)")
    assert [r[1] for r in run_sql("select * from d.u").rows] == [1, 2, 3]
    assert next(t.id for t in playground.database.catalog.tables.values() if t.name == "u") == before
    with pytest.raises(SqlError, match="was dropped"):
        run_sql("recover table d.t")
    run_sql("truncate table d.u")
    with pytest.raises(SqlError, match="exists"):
        run_sql("recover table d.u")
    run_sql("drop database d; flashback database d to e")
    assert run_sql("select * from e.u").rows == ()
    with pytest.raises(SqlError, match="was dropped"):
        run_sql("flashback database d")
