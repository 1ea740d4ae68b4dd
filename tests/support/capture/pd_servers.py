"""Real PD servers for tests: processes of a `pd-server` that is on this machine already, and stores and regions that a test makes up.

PD believes what stores tell it: a store is whatever `put_store` says, a region whatever a heartbeat says. So regions split, merge, move
and lose their leaders here without any TiKV. What capture itself never sends is not in tidemill/wire; it is written by field number.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc

from tidemill.process.ports import free_ports
from tidemill.wire import metapb_pb2 as metapb
from tidemill.wire import pdpb_pb2 as pdpb
from tidemill.wire import pdpb_pb2_grpc

VARIABLE = "TIDEMILL_PD_SERVER"
PATIENCE = 300.0
CONFIG = """
lease = 3
[replication]
max-replicas = 1
[schedule]
leader-schedule-limit = 0
region-schedule-limit = 0
replica-schedule-limit = 0
merge-schedule-limit = 0
hot-region-schedule-limit = 0
"""


def pd_server() -> str | None:
    """The program: what TIDEMILL_PD_SERVER names, or `pd-server` of PATH."""
    return os.environ.get(VARIABLE) or shutil.which("pd-server")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of the servers. `names`: common names of clients that they accept."""

    ca: Path
    cert: Path
    key: Path
    names: tuple[str, ...] = ()

    def config(self) -> str:
        """As PD's configuration has it."""
        names = f"cert-allowed-cn = {json.dumps(list(self.names))}\n" if self.names else ""
        return f'[security]\ncacert-path = "{self.ca}"\ncert-path = "{self.cert}"\nkey-path = "{self.key}"\n{names}'


class PdServers:
    """`n` members of one cluster. `tls`: for all of them, and for the calls of this class."""

    def __init__(self, folder: Path, n: int = 1, tls: Tls | None = None) -> None:
        self.folder, self.tls = folder, tls
        ports = free_ports(2 * n)
        scheme = "https" if tls else "http"
        self.addresses = [f"127.0.0.1:{port}" for port in ports[:n]]
        self.urls = [f"{scheme}://{address}" for address in self.addresses]
        self._peers = [f"{scheme}://127.0.0.1:{port}" for port in ports[n:]]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: dict[str, Any] = {}
        self._heart: Any = None
        self.cluster_id = 0

    # ------------------------------------------------------------------ processes

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "pd.toml").write_text(CONFIG + (self.tls.config() if self.tls else ""))
        for i in range(len(self.addresses)):
            self._processes.append(self._spawn(i))
        self.cluster_id = (await self.members()).header.cluster_id
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._heart is not None:
            self._heart.cancel()
        for channel in self._channels.values():
            await channel.close()
        for process in self._processes:
            process.kill()
            process.wait()

    def _spawn(self, i: int) -> subprocess.Popen[bytes]:
        program = pd_server()
        assert program is not None
        members = ",".join(f"pd{k}={peer}" for k, peer in enumerate(self._peers))
        flags = {
            "name": f"pd{i}", "data-dir": self.folder / f"pd{i}", "client-urls": self.urls[i], "peer-urls": self._peers[i],
            "initial-cluster": members, "config": self.folder / "pd.toml", "log-file": self.folder / f"pd{i}.log",
        }  # fmt: skip
        with (self.folder / f"pd{i}.out").open("ab") as out:
            return subprocess.Popen([program, *(f"--{name}={value}" for name, value in flags.items())], stdout=out, stderr=out)

    def kill(self, i: int) -> None:
        """Kill a server (SIGKILL)."""
        self._processes[i].kill()
        self._processes[i].wait()

    def restart(self, i: int) -> None:
        """After `kill`."""
        self._processes[i] = self._spawn(i)

    def freeze(self, i: int) -> None:
        """Stop a server (SIGSTOP): it listens on and does not answer."""
        self._processes[i].send_signal(signal.SIGSTOP)

    def thaw(self, i: int) -> None:
        """After `freeze`."""
        self._processes[i].send_signal(signal.SIGCONT)

    # ------------------------------------------------------------------ calls

    def _channel(self, address: str) -> Any:
        if address not in self._channels:
            if self.tls is None:
                channel = grpc.aio.insecure_channel(address)
            else:
                files = [path.read_bytes() for path in (self.tls.ca, self.tls.key, self.tls.cert)]
                channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(*files))
            self._channels[address] = channel
        return self._channels[address]

    async def members(self) -> pdpb.GetMembersResponse:
        """Return the members. Asks again until a leader answers."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for address in self.addresses:
                    try:
                        answer = await pdpb_pb2_grpc.PDStub(self._channel(address)).GetMembers(pdpb.GetMembersRequest(), timeout=2)
                    except grpc.aio.AioRpcError:
                        continue
                    if answer.leader.client_urls:
                        return answer
                await asyncio.sleep(0.1)

    async def leader(self) -> int:
        """Which member leads."""
        return self.urls.index((await self.members()).leader.client_urls[0])

    async def resign(self, i: int) -> None:
        """Make the leader resign."""
        await self.http("POST", "/pd/api/v1/leader/resign", i)

    async def http(self, method: str, path: str, i: int = 0) -> Any:
        """PD's HTTP interface (without TLS)."""
        request = urllib.request.Request(self.urls[i] + path, method=method, data=b"" if method == "POST" else None)

        def ask() -> Any:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.read()

        return await asyncio.to_thread(ask)

    async def _call(self, name: str, *fields: bytes) -> bytes:
        address = self.addresses[await self.leader()]
        header = pdpb.RequestHeader(cluster_id=self.cluster_id).SerializeToString()
        answer: bytes = await self._channel(address).unary_unary(f"/pdpb.PD/{name}")(_message(header, *fields), timeout=10)
        found = pdpb.GetGCSafePointResponse.FromString(answer)  # the header is field 1 of every answer
        assert not found.header.error.message, found.header.error.message
        return answer

    async def bootstrap(self, store: metapb.Store, region: metapb.Region) -> None:
        """Bootstrap the cluster with its first store and region."""
        await self._call("Bootstrap", store.SerializeToString(), region.SerializeToString())

    async def put_store(self, store: metapb.Store) -> None:
        """Register a store and send its heartbeat."""
        await self._call("PutStore", store.SerializeToString())
        stats = pdpb.StoreStats(store_id=store.id, capacity=1 << 40, available=1 << 39)
        await self._call("StoreHeartbeat", stats.SerializeToString())

    async def update_gc_safe_point(self, ts: int) -> None:
        """As TiDB's GC worker does when it has decided how far to collect."""
        header = pdpb.RequestHeader(cluster_id=self.cluster_id).SerializeToString()
        request = pdpb.GetGCSafePointResponse.FromString(_message(header))  # the same fields: header 1, safe_point 2
        request.safe_point = ts
        address = self.addresses[await self.leader()]
        await self._channel(address).unary_unary("/pdpb.PD/UpdateGCSafePoint")(request.SerializeToString(), timeout=10)

    async def heartbeats(self, regions: Iterable[tuple[metapb.Region, metapb.Peer | None]]) -> None:
        """Send heartbeats of regions, as their leaders do. The stream stays open."""
        if self._heart is None or self._heart.done():
            address = self.addresses[await self.leader()]
            self._heart = self._channel(address).stream_stream("/pdpb.PD/RegionHeartbeat")()
        header = pdpb.RequestHeader(cluster_id=self.cluster_id).SerializeToString()
        for region, leader in regions:
            parts = [region.SerializeToString()] + ([leader.SerializeToString()] if leader is not None else [])
            await self._heart.write(_message(header, *parts) + b"\x50\x0a\x68\x0a")  # approximate size (10) and keys (13): 10

    async def forget_heart(self) -> None:
        """Send the next heartbeats to the leader of that moment."""
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None


def _message(*fields: bytes) -> bytes:
    """A protobuf message of the fields 1, 2, …, all of them messages."""
    out = b""
    for number, field in enumerate(fields, 1):
        n, size = len(field), b""
        while n > 0x7F:
            size, n = size + bytes([n & 0x7F | 0x80]), n >> 7
        out += bytes([number << 3 | 2]) + size + bytes([n]) + field
    return out


def store(id_: int, address: str = "", *, version: str = "8.5.1", labels: Sequence[tuple[str, str]] = ()) -> metapb.Store:
    """Return a store as it registers."""
    found = metapb.Store(id=id_, address=address or f"127.0.0.1:{20160 + id_}", version=version)
    found.labels.extend(metapb.StoreLabel(key=k, value=v) for k, v in labels)
    return found


def region(id_: int, start: bytes, end: bytes, version: int = 1, store_id: int = 1, conf_ver: int = 1) -> tuple[metapb.Region, metapb.Peer]:
    """A region with encoded keys and one peer, which leads."""
    peer = metapb.Peer(id=1000 + id_, store_id=store_id)
    epoch = metapb.RegionEpoch(conf_ver=conf_ver, version=version)
    return metapb.Region(id=id_, start_key=start, end_key=end, region_epoch=epoch, peers=[peer]), peer
