"""A proxy of the environment is for the web: PD and TiKV are never asked through it."""

from __future__ import annotations

import asyncio

import pytest

from tidemill.capture.meta import read_meta
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.playground.control import call
from tidemill.playground.server import PlaygroundThread
from tidemill.process.ports import free_ports


def test_pd_and_tikv_are_reached_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(address: str) -> int:
        client = await PdClient.connect(address)
        try:
            return len(await read_meta(client, await client.tso()))
        finally:
            await client.close()

    with PlaygroundThread(seed=1) as playground:
        call(playground.pd_address, "sql", text="create database one")
        nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
        for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, nobody)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert asyncio.run(ask(playground.pd_address)) > 0
