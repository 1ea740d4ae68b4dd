"""What TiUP and TiDB Operator ask of a TiCDC server, against a server over fake processes.

TiUP: pingcap/tiup 842f05cc8, pkg/cluster (api/cdcapi.go, spec/cdc.go, operation). TiDB Operator: pingcap/tidb-operator 42684baa3,
pkg/ticdcapi and pkg/controllers/ticdc, and its older pkg/controller/ticdc_control.go, which sends the same.
"""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server.apis import BASE
from tests.support.server.fake_world import FakeElector, World
from tidemill.server.api import create_app
from tidemill.server.shared.members import Member

with (Path(__file__).parents[2] / "golden" / "peers" / "ticdc_cluster_tools.tsv").open(encoding="utf-8") as file:
    RECORDED = list(csv.DictReader(file, delimiter="\t"))
OWN, OTHER = "127.0.0.1:8300", "127.0.0.1:8301"
IGNORED = ("CDC:ErrSchedulerRequestFailed", "CDC:ErrCaptureNotExist")
"""Codes in a refused drain with which TiUP goes on at once; with others it tries again for as long as a restart may take."""


@dataclass
class Tool:
    """A client. `sent`: its requests, as they stand in the list."""

    name: str
    client: httpx.AsyncClient
    when: str = ""
    sent: list[tuple[str, str, str, str]] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: dict[str, str] | None = None) -> httpx.Response:
        answer = await self.client.request(method, path, json=body, headers={"Content-Type": "application/json"})
        self.sent.append((self.when, method, path, " ".join(body or {})))
        reads = next(row["reads"] for row in self.recorded if (row["method"], row["path"]) == (method, path) and row["when"] == self.when)
        if answer.is_success and path != "/metrics" and reads:
            found = answer.json()
            for one in found if isinstance(found, list) else [found]:
                assert set(reads.split()) <= one.keys(), path
        return answer

    @property
    def recorded(self) -> list[dict[str, str]]:
        return [row for row in RECORDED if row["tool"] == self.name]

    async def captures(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.ask("GET", "/api/v1/captures")).json()
        return found


Work = Callable[[World, Tool], Awaitable[None]]


def run(folder: Path, tool: str, work: Work) -> None:
    async def with_world() -> None:
        async with World(folder) as world:
            transport = httpx.ASGITransport(create_app(world.manager), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
                await work(world, Tool(tool, client))

    asyncio.run(with_world())


def beside(world: World) -> Any:
    """Let another server be there."""
    elector: Any = FakeElector([Member(world.manager.id, OWN, "1", 1), Member("other", OTHER, "1", 1)])
    world.manager.elects(elector)
    return elector


def test_tiup_restarts_one_of_two_servers(tmp_path: Path) -> None:
    async def work(world: World, tiup: Tool) -> None:
        elector = beside(world)
        tiup.when = "display"
        assert (await tiup.ask("GET", "/status")).is_success
        tiup.when = "display --uptime"
        page = (await tiup.ask("GET", "/metrics")).text
        started = re.search(r"process_start_time_seconds\s+([\d.e+-]+)", page)
        assert started is not None, "it reads the first place where the name stands before a number"
        assert float(started.group(1)) > 1_700_000_000
        tiup.when = "scale-in, upgrade"
        assert [one["address"] for one in await tiup.captures() if one["is_owner"]] == [OWN]
        tiup.when = "before a restart"
        assert (await tiup.ask("GET", "/api/v1/health")).is_success
        (own,) = [one for one in await tiup.captures() if one["address"] == OWN]
        tiup.when = "before a restart, of the owner"
        assert (await tiup.ask("POST", "/api/v1/owner/resign")).is_success
        assert len(elector.resigned) == 1
        assert own in await tiup.captures()
        tiup.when = "before a restart, at last"
        assert own["id"] in [one["id"] for one in await tiup.captures()]
        drained = await tiup.ask("PUT", "/api/v1/captures/drain", {"capture_id": own["id"]})
        assert (drained.status_code, drained.json()["current_table_count"]) == (202, 0)
        tiup.when = "after a restart"
        assert (await tiup.ask("GET", "/api/v1/status")).json()["liveness"] == 1, "it was drained and has not been restarted"
        assert sorted(tiup.sent) == sorted((row["when"], row["method"], row["path"], row["body"]) for row in tiup.recorded)

    run(tmp_path, "tiup", work)


@pytest.mark.parametrize("target", ["own", "gone"])
def test_tiup_does_not_wait_where_nothing_can_be_drained(tmp_path: Path, target: str) -> None:
    async def work(world: World, tiup: Tool) -> None:
        tiup.when = "before a restart, at last"
        refused = await tiup.ask("PUT", "/api/v1/captures/drain", {"capture_id": world.manager.id if target == "own" else "gone"})
        assert any(code in refused.text for code in IGNORED), refused.text

    run(tmp_path, "tiup", work)


def test_tidb_operator_deletes_the_pod_of_an_owner(tmp_path: Path) -> None:
    async def work(world: World, operator: Tool) -> None:
        elector = beside(world)
        operator.when = "reconcile"
        assert [one["id"] for one in await operator.captures() if one["is_owner"]] == [world.manager.id]
        assert (await operator.ask("GET", "/api/v1/health")).is_success
        assert (await operator.ask("GET", "/status")).json()["is_owner"] is True
        operator.when = "before a pod is deleted"
        assert [one["is_owner"] for one in await operator.captures() if one["address"] == OWN] == [True]
        operator.when = "before a pod is deleted, of the owner"
        assert (await operator.ask("POST", "/api/v1/owner/resign")).is_success
        assert len(elector.resigned) == 1
        operator.when = "before a pod is deleted, of another one"
        (other,) = [one for one in await operator.captures() if not one["is_owner"]]
        drained = await operator.ask("PUT", "/api/v1/captures/drain", {"capture_id": other["id"]})
        assert drained.json()["current_table_count"] == 0
        assert operator.sent == [(row["when"], row["method"], row["path"], row["body"]) for row in operator.recorded]

    run(tmp_path, "operator", work)
