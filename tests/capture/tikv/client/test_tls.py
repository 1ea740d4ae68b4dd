"""TLS and mutual TLS to PD and TiKV, over both transports; wrong, expired and rotated certificates."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from tests.support.capture.captures import caught_up, compare, config, running
from tests.support.capture.loops import run
from tests.support.servers.certificates import Authority
from tidemill.capture.capture import Capture
from tidemill.capture.config import CaptureConfig
from tidemill.capture.initial_load import loading_of
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.client.tls import Security, security_of
from tidemill.capture.tikv.feed.base import Transport
from tidemill.changelog.initial_load import Part
from tidemill.changelog.storage.open import open_storage
from tidemill.errors import ConfigError, UpstreamError, UpstreamUnavailable
from tidemill.playground.server import Playground
from tidemill.playground.services.feed import FeedService
from tidemill.playground.services.gate import ServerTls
from tidemill.playground.services.kv import KvService
from tidemill.spark.capture.snapshot import Upstream, load_parts
from tidemill.tidb.keys import record_range

EACH_ONCE = ((Transport.H2, True, True), (Transport.H2, False, False), (Transport.GRPC, True, False))


@dataclass
class Office:
    """An authority, a server's certificate and a client's files."""

    folder: Path

    def __post_init__(self) -> None:
        self.authority = Authority()
        self.server = self.authority.sign("server")
        self.ca = self.folder / "ca.pem"
        self.ca.write_bytes(self.authority.pem)
        self.cert, self.key = self.authority.sign("client").write(self.folder, "client")

    def tls(self, mutual: bool = False) -> ServerTls:
        return ServerTls(self.server.certificate, self.server.key, self.authority.pem if mutual else None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "mutual", "fast"),
    [
        pytest.param(
            *one,
            id=f"{one[0].value}-{'mutual' if one[1] else 'tls'}-{'uvloop' if one[2] else 'asyncio'}",
            marks=[] if one in EACH_ONCE else [pytest.mark.thorough("each value of each is in `make test`")],
        )
        for one in itertools.product(Transport, (False, True), (False, True))
    ],
)
def test_a_capture_over_tls(tmp_path: Path, transport: Transport, mutual: bool, fast: bool) -> None:
    async def main() -> None:
        office = Office(tmp_path)
        async with Playground(11, stores=2, resolved_interval=0.1, tls=office.tls(mutual)) as playground:
            playground.execute("create table t (id int primary key, v text); insert into t values (1, 'a')")
            files = {"ca": office.ca} | ({"cert": office.cert, "key": office.key} if mutual else {})
            settings = config(playground, tmp_path / "log", transport=transport, **files)
            async with running(settings) as capture:
                for i in range(20):
                    playground.execute(f"insert into t values ({10 + i}, '{'x' * 50_000}')")
                playground.feeds[1].break_streams()
                await caught_up(capture, playground.cluster.oracle.next())
            assert compare(playground.cluster, tmp_path / "log")[0] >= 20

    run(main(), runner=uvloop.run if fast else asyncio.run)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("wrong ca", "CERTIFICATE_VERIFY_FAILED"),
        ("expired", "CERTIFICATE_VERIFY_FAILED"),
        ("no client certificate", "does not answer GetMembers"),
        ("no tls at the server", "does not answer GetMembers"),
        ("no tls here", "does not answer GetMembers"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, case: str, text: str) -> None:
    async def main() -> None:
        office = Office(tmp_path)
        if case == "expired":
            office.server = office.authority.sign("server", expired=True)
        tls = None if case == "no tls at the server" else office.tls(mutual=case == "no client certificate")
        if case == "wrong ca":
            office.ca.write_bytes(Authority("another").pem)
        security = None if case == "no tls here" else Security(office.ca)
        async with Playground(12, tls=tls) as playground:
            with pytest.raises(UpstreamUnavailable, match="GetMembers") as caught:
                await PdClient.connect(playground.pd_address, retry_s=1.0, security=security)
            assert text in caught.value.message

    run(main())


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("where", ["change feed", "reads"])
def test_a_name_that_the_cluster_does_not_allow_ends_the_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: Transport, where: str
) -> None:
    """TiKV accepts the connection and answers each call with this status (cert-allowed-cn): endless retries would hide the cause."""

    async def refuse(self: object, requests: object, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "reason: CN not allowed")

    if where == "change feed":
        monkeypatch.setattr(FeedService, "_event_feed_v2", refuse)
    else:
        monkeypatch.setattr(KvService, "_in_region", lambda service, *_: partial(refuse, service))

    async def main() -> None:
        async with Playground(14) as playground:
            playground.execute("create table t (id int primary key)")
            with pytest.raises(
                UpstreamError, match=r"TiKV 127\.0\.0\.1:\d+ refuses this client: .*CN not allowed\n.*common name"
            ) as caught:
                await Capture(config(playground, tmp_path / "log", transport=transport)).run()
            assert not caught.value.retryable

    run(main())


def test_a_rotated_certificate_takes_effect_with_the_next_connection(tmp_path: Path) -> None:
    """The client's CA is replaced while the capture runs, then the servers' certificates: it continues."""

    async def main() -> None:
        office = Office(tmp_path)
        playground = Playground(13, stores=2, resolved_interval=0.1, tls=office.tls())
        async with playground:
            playground.execute("create table t (id int primary key); insert into t values (1)")
            async with running(config(playground, tmp_path / "log", ca=office.ca, transport=Transport.H2)) as capture:
                await caught_up(capture, playground.cluster.oracle.next())
                new = Authority("new CA")
                office.ca.write_bytes(new.pem + office.authority.pem)
                server = new.sign("server")
                playground._tls = ServerTls(server.certificate, server.key)
                await playground.stop_store(2)
                await playground.restart_store(2)
                playground.execute("insert into t values (2)")
                await caught_up(capture, playground.cluster.oracle.next())
                assert await capture.pd.tso() > 0
            compare(playground.cluster, tmp_path / "log")

    run(main())


def test_parts_of_an_initial_load_are_read_over_tls(tmp_path: Path) -> None:
    """As a Spark task reads them; the process that starts the tasks is given the files."""

    async def main() -> None:
        office = Office(tmp_path)
        async with Playground(15, stores=2, tls=office.tls(mutual=True)) as playground:
            playground.execute("create table t (id int primary key); insert into t values (1), (2), (3)")
            (table,) = [t for t in playground.database.catalog.tables.values() if t.name == "t"]
            (tmp_path / "log").mkdir()
            part = Part(playground.cluster.oracle.next(), table.model.id, 1, 1, *record_range(table.model.id))
            upstream = Upstream((playground.pd_address,), (office.ca, office.cert, office.key))
            work = partial(load_parts, upstream, str(tmp_path / "log"), "none", [part])
            (outcome,) = await asyncio.to_thread(lambda: list(work()))
            assert (outcome.rows, outcome.code) == (3, "")
        settings = CaptureConfig(pd=("a:1",), log=str(tmp_path / "log"), ca=office.ca, cert=office.cert, key=office.key)
        order = loading_of(open_storage(settings.log), settings).order
        assert (order.ca, order.cert, order.key) == (office.ca, office.cert, office.key)

    run(main())


def test_one_quiet_member_of_several_does_not_matter(tmp_path: Path) -> None:
    async def main() -> None:
        office = Office(tmp_path)
        async with Playground(14, resolved_interval=0.1, tls=office.tls()) as playground:
            pd = await PdClient.connect(f"https://127.0.0.1:1,https://{playground.pd_address}", security=Security(office.ca))
            assert pd.leader == playground.pd_address
            await pd.close()

    run(main())


def test_flags_that_contradict_each_other(tmp_path: Path) -> None:
    office = Office(tmp_path)
    assert security_of(["a:1", "b:2"], None, None, None) is None
    assert security_of(["http://a:1"], None, None, None) is None
    assert security_of(["https://a:1"], None, None, None) == Security()
    assert security_of(["a:1"], office.ca, None, None) == Security(office.ca)
    for addresses, files, text in (
        (["http://a:1"], (office.ca, None, None), "http://"),
        (["http://a:1", "https://b:1"], (None, None, None), "others http://"),
        (["ftp://a:1"], (None, None, None), "ftp://"),
        (["a:1"], (office.ca, office.cert, None), "belong together"),
        (["a:1"], (tmp_path / "none.pem", None, None), "none.pem cannot be read"),
        (["a:1"], (office.key, None, None), "no certificate in PEM form"),
        (["a:1"], (office.ca, office.cert, office.ca), "not a pair"),
    ):
        with pytest.raises(ConfigError) as caught:
            security_of(addresses, *files)
        assert text in caught.value.message
    with pytest.raises(ConfigError):
        CaptureConfig(pd=("http://a:1",), log="x", ca=office.ca).security  # noqa: B018


def test_a_stamp_tells_when_a_file_has_changed(tmp_path: Path) -> None:
    office = Office(tmp_path)
    security = Security(office.ca, office.cert, office.key)
    before = security.stamp()
    assert security.stamp() == before
    office.cert.write_bytes(office.cert.read_bytes() + b"\n")
    assert security.stamp() != before
    assert time.time_ns() >= before[0][0]


@pytest.mark.parametrize("reference", ["FILE", "COMMAND"])
def test_an_encrypted_key_is_read_with_the_password_that_the_environment_refers_to(
    tmp_path: Path, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    office, place = Office(tmp_path), tmp_path / "password"
    key = load_pem_private_key(office.key.read_bytes(), None)
    office.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"zq7")))
    security = Security(office.ca, office.cert, office.key)
    for asked in (security.check, security.credentials):
        with pytest.raises(ConfigError, match=r"(?s)client\.key.*TIDEMILL_KEY_PASSWORD_FILE"):
            asked()
    place.write_text("wrong\n")
    monkeypatch.setenv(f"TIDEMILL_KEY_PASSWORD_{reference}", str(place) if reference == "FILE" else f"cat {place}")
    for asked in (security.check, security.credentials):
        with pytest.raises(ConfigError, match=r"(?s)client\.key.*TIDEMILL_KEY_PASSWORD_FILE"):
            asked()
    place.write_text("zq7\n")
    security.check()

    async def main() -> None:
        async with Playground(5, tls=office.tls(mutual=True)) as playground:
            pd = await PdClient.connect((playground.pd_address,), security=security)
            assert await pd.tso() > 0
            await pd.close()

    run(main())
