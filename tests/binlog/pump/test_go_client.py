"""A client of grpc-go, which TiDB's pump client is made with, against a Pump that lets only some names in. Needs Go and its modules."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.binlog.pumps import running_pump
from tests.support.servers.certificates import Authority
from tidemill.playground.server import Playground
from tidemill.playground.services.gate import ServerTls

SOURCE = Path(__file__).parents[2] / "support" / "binlog" / "go_client"
COUNT = 100


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program. Nothing is fetched: the modules have to be in Go's own cache."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("Go is not installed")
    made = tmp_path_factory.mktemp("go") / "client"
    settings = {"GOPROXY": "off", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    found = subprocess.run([go, "list", "-deps", "."], cwd=SOURCE, env=os.environ | settings, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"Go has no module of grpc-go: {found.stderr[-300:]}")
    subprocess.run([go, "build", "-o", str(made), "."], cwd=SOURCE, env=os.environ | settings, check=True)
    return made


@pytest.mark.slow
def test_names_that_are_allowed_write_and_pull_and_others_are_turned_away(client: Path, tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem)
    certificate, key = authority.sign("pump").write(tmp_path, "pump")
    settings = {"ssl_ca": str(ca), "ssl_cert": str(certificate), "ssl_key": str(key), "cert_allowed_cn": ("pump", "tidb")}

    async def asked(name: str, address: str, *numbers: int) -> str:
        """What the client says that has a certificate of this name."""
        paths = authority.sign(name).write(tmp_path, name)
        process = await asyncio.create_subprocess_exec(
            str(client), address, str(ca), *map(str, paths), *map(str, numbers), stdout=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0].decode()

    async def run() -> None:
        tls = ServerTls(certificate.read_bytes(), key.read_bytes(), authority.pem)
        async with Playground(tls=tls) as playground:
            urls = f"https://{playground.pd_address}"
            async with running_pump(tmp_path / "data", playground, pd_urls=urls, fake_binlog_interval=3600.0, **settings) as running:
                cluster, base = running.pump.cluster_id, playground.cluster.oracle.next()
                assert await asked("tidb", running.address, cluster, base, COUNT) == f"came back: {COUNT}\n"
                assert await asked("stranger", running.address, cluster, base + 10 * COUNT, 1) == "failed: Unavailable\n"
                assert await asked("tidb", running.address, cluster + 1, base, 1) == "failed: Unknown\n"

    asyncio.run(run())
