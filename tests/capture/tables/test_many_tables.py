"""A capture of four hundred tables with its log on an object store: its requests at the start and when idle."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter

import pytest

from tests.support.capture.captures import config, running, until
from tests.support.faults.s3_faults import Fault, spoiled
from tests.support.schema.many_tables import create_tables, load_tables
from tests.support.servers.s3 import make_bucket, s3_server
from tidemill.capture.capture import Capture
from tidemill.playground.server import Playground

__all__ = ["s3_server"]

TABLES = 400
ROUNDS = 3
A_SECOND = 30
"""Requests of an idle capture at most: seals go on as the upstream's resolved ts does, however long a look takes."""


def location(endpoint: str) -> str:
    return f"s3://test:test@many/log?endpoint_override={endpoint.partition('://')[2]}&scheme=http&region=us-east-1"


async def live(capture: Capture) -> None:
    await until(lambda: capture.pulling.machine.counts()["live"] >= TABLES)


@pytest.mark.slow
def test_what_a_capture_of_many_tables_asks(tmp_path_factory: object, s3_server: str) -> None:
    asked: list[tuple[str, str]] = []

    def note(method: str, path: str) -> Fault:
        asked.append((method, path))
        return Fault.NONE

    def looks() -> int:
        return sum(re.search(r"prefix=log(/|%2F)snapshot(/|%2F)requests", path) is not None for _, path in asked)

    async def main(proxy: str) -> None:
        async with Playground(1, stores=2, resolved_interval=0.5) as playground:
            await asyncio.to_thread(create_tables, playground, TABLES)
            settings = config(playground, location(proxy), data_dir=folder)
            async with running(settings) as capture:
                await live(capture)
            await asyncio.to_thread(load_tables, location(s3_server), TABLES)
            asked.clear()
            async with running(settings) as capture:
                await live(capture)
                await until(lambda: looks() >= 4)  # by then everything that is complete has been asked for, on a busy machine too
                assert len(asked) < 300, Counter(asked).most_common(20)
                assert capture.pulling.machine.questions < 50
                folders = [path for _, path in asked if re.search(r"snapshot(/|%2F)\d{20}(/|%2F)\d+", path)]
                assert folders == [], "no table's folder is looked into"
                first, begun, since = len(asked), looks(), time.monotonic()
                await until(lambda: looks() >= begun + ROUNDS)
                rest = Counter(f"{method} {path.partition('?')[0]}" for method, path in asked[first:])
                whole = sum("complete.json" in path or "plan.json" in path for _, path in asked[first:])
                assert whole < ROUNDS, "what is complete is asked for by the retention now and then, not at each look"
                assert len(asked) - first < A_SECOND * (time.monotonic() - since), rest

    folder = tmp_path_factory.mktemp("many")  # type: ignore[attr-defined]
    make_bucket(s3_server, "many")
    with spoiled(s3_server, note) as proxy:
        asyncio.run(main(proxy))
