"""A Drainer in a cluster with TLS: what it pulls, and who may speak to it."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import grpc
import pytest

from tests.support.binlog.binlogs import until
from tests.support.binlog.fake_pumps import BEGIN, PumpWorld, inserted, world
from tests.support.servers.certificates import Authority
from tidemill.binlog.drainer.destination import Forms
from tidemill.binlog.drainer.drainer import Drainer
from tidemill.binlog.drainer.settings import Downstream, DrainerSettings, read_file
from tidemill.binlog.messages import fake
from tidemill.binlog.nodes import NodeEvent, NodeKind
from tidemill.capture.tikv.client.tls import Security
from tidemill.errors import ConfigError
from tidemill.playground.services.gate import ServerTls
from tidemill.wire import pump_pb2


async def notified(address: str, credentials: grpc.ChannelCredentials) -> grpc.StatusCode:
    """Notify a Drainer as a Pump does."""
    async with grpc.aio.secure_channel(address, credentials) as channel:
        call = channel.unary_unary("/binlog.Cistern/Notify", pump_pb2.NotifyReq.SerializeToString, pump_pb2.NotifyResp.FromString)
        try:
            await call(pump_pb2.NotifyReq(), timeout=60)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


async def status(address: str, context: ssl.SSLContext) -> bytes:
    """The first line of the answer to GET /status."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(b"GET /status HTTP/1.1\r\n\r\n")
    try:
        return await reader.readline()
    finally:
        writer.close()


def test_pumps_are_pulled_from_and_only_allowed_clients_are_served(tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    own, other = authority.sign("pump"), authority.sign("stranger")
    certificate, key = own.write(tmp_path, "own")

    async def run() -> None:
        tls, security = ServerTls(own.certificate, own.key, authority.pem), Security(ca, certificate, key)
        async with world(tmp_path, PumpWorld, tls=tls, security=security) as w:
            w.credentials = grpc.ssl_server_credentials([(own.key, own.certificate)], authority.pem, require_client_auth=True)
            await w.pump("p1", inserted(BEGIN + 10, 1), fake(BEGIN + 20))
            drainer = Drainer(settings := made(w, ca, certificate, key), Forms(settings))
            task = asyncio.ensure_future(drainer.run())
            try:
                await until(lambda: drainer.done_ts == BEGIN + 20 or task.done())
                good = grpc.ssl_channel_credentials(authority.pem, own.key, own.certificate)
                bad = grpc.ssl_channel_credentials(authority.pem, other.key, other.certificate)
                assert await notified(drainer.address, good) is grpc.StatusCode.OK
                assert await notified(drainer.address, bad) in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                context = ssl.create_default_context(cafile=str(ca))
                context.load_cert_chain(certificate, key)
                assert await status(drainer.address, context) == b"HTTP/1.1 200 OK\r\n"
                drainer.ask(NodeEvent.PAUSE)
                await task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert await w.registry.get(NodeKind.DRAINER, "d1") is not None

    asyncio.run(run())


def made(w: PumpWorld, ca: Path, certificate: Path, key: Path) -> DrainerSettings:
    """The settings, with a file that says who may speak to it."""
    file = w.folder / "drainer.toml"
    file.write_text(f'[security]\nssl-ca = "{ca}"\nssl-cert = "{certificate}"\nssl-key = "{key}"\ncert-allowed-cn = ["pump"]\n')
    found = read_file(file)
    assert found["cert_allowed_cn"] == ("pump",)
    address, to = w.playground.pd_address, Downstream(dir=str(w.folder / "out"))
    return DrainerSettings(
        addr="127.0.0.1:0", advertise_addr="127.0.0.1:1", pd_urls=f"https://{address}", data_dir=str(w.folder / "data"), node_id="d1",
        initial_commit_ts=BEGIN, db_type="file", to=to, **{name: value for name, value in found.items() if name not in ("rules", "to")},
    )  # fmt: skip


@pytest.mark.parametrize("value", ['"pump"', "[1]"])
def test_names_that_are_no_list_of_texts_are_refused(tmp_path: Path, value: str) -> None:
    file = tmp_path / "drainer.toml"
    file.write_text(f"[security]\ncert-allowed-cn = {value}\n")
    with pytest.raises(ConfigError, match="cert-allowed-cn"):
        read_file(file)
