"""A capture whose log is on storage that goes away and comes back: nothing is lost, and the capture does not end."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.capture.captures import caught_up, compare, config, running, until
from tests.support.faults.away import Mount
from tests.support.faults.proxy import Proxy
from tests.support.faults.s3_faults import Fault, spoiled
from tests.support.servers.s3 import make_bucket, s3_server
from tidemill.capture.capture import Capture
from tidemill.changelog.storage import retry, s3
from tidemill.changelog.verify import verify
from tidemill.cli.changefeeds.status import summary
from tidemill.errors import LogRefused, LogUnavailable
from tidemill.playground.server import Playground

__all__ = ["s3_server"]

ROUNDS = 2
"""One in which the capture is behind when the folder goes away, and one in which it is not."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LONGEST_S", 0.2)
    monkeypatch.setattr(retry, "FIRST_S", 0.05)
    monkeypatch.setattr("tidemill.capture.capture.STATUS_EVERY", 0.1)


def prepared(playground: Playground) -> None:
    playground.execute("create database d; create table d.t (id int primary key, v varchar(64))")


def change(playground: Playground, step: int) -> None:
    values = ", ".join(f"({20 * step + i}, '{step}')" for i in range(20))
    playground.execute(f"insert into d.t (id, v) values {values}")
    playground.execute(f"update d.t set v = 'x{step}' where id = {20 * step}")


@pytest.mark.parametrize("number", [errno.EIO, pytest.param(errno.ESTALE, marks=pytest.mark.thorough("test_outcomes.py tells them apart"))])
def test_a_folder_that_goes_away_and_comes_back_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """With rows, DDLs, maintenance and requests during the outage; the status says since when."""
    mount = Mount(tmp_path / "log", monkeypatch)
    monkeypatch.setattr("tidemill.capture.worker.MAINTAIN_EVERY", 0.1)
    rng = random.Random(number)

    async def main() -> None:
        async with Playground(3, resolved_interval=0.05) as playground:
            prepared(playground)
            async with running(config(playground, tmp_path / "log", partitions=2)) as capture:
                for round_ in range(ROUNDS):
                    change(playground, 3 * round_)
                    if round_ % 2:
                        await caught_up(capture, playground.cluster.oracle.next())
                    mount.number = number
                    change(playground, 3 * round_ + 1)
                    playground.execute(f"alter table d.t add column c{round_} int")
                    await until(lambda: capture.status.storage is not None)
                    head = capture.writer.resolved_ts
                    for _ in range(rng.randrange(3, 10)):  # some calls succeed all the same
                        mount.spared = lambda path: rng.random() < 0.5
                        await asyncio.sleep(0.05)
                    mount.spared = lambda path: False
                    told = capture.status.as_dict()
                    assert told["state"] == "running"
                    mount.number = None
                    change(playground, 3 * round_ + 2)
                    await caught_up(capture, playground.cluster.oracle.next())
                    assert capture.writer.resolved_ts > head
                    await until(lambda: capture.status.storage is None)
            compare(playground.cluster, tmp_path / "log")

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    words = [record.getMessage() for record in caplog.records if record.name == retry.__name__]
    assert len([word for word in words if "is away and is tried again" in word]) >= ROUNDS
    assert len([word for word in words if "storage is back" in word]) >= ROUNDS
    assert mount.failed > 20
    assert verify(str(tmp_path / "log")).is_whole


def test_the_status_tells_since_when_storage_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = Mount(tmp_path / "log", monkeypatch)

    async def main() -> None:
        async with Playground(1, resolved_interval=0.05) as playground:
            prepared(playground)
            settings = config(playground, tmp_path / "log")
            async with running(settings) as capture:
                mount.number = errno.EIO
                change(playground, 0)

                def told() -> dict[str, Any]:
                    found: dict[str, Any] = json.loads((settings.folder / "status.json").read_text())
                    return found

                await until((settings.folder / "status.json").exists)  # a capture is running a moment before it has told so
                await until(lambda: told()["storage"] is not None)
                status = told()
                assert "Input/output error" in status["storage"]["message"]
                assert status["state"] == "running"
                [line] = [line for line in summary(status) if line.startswith("storage")]
                assert f"away since {status['storage']['since']}" in line
                samples = {sample.name: sample.value for sample in capture._samples()}
                assert "tidemill_capture_storage_away_seconds" in samples
                mount.number = None
                await until(lambda: told()["storage"] is None)

    asyncio.run(main())


def test_a_stop_while_storage_is_away_ends_cleanly_and_the_next_start_lacks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = Mount(tmp_path / "log", monkeypatch)

    async def main() -> None:
        async with Playground(2, resolved_interval=0.05) as playground:
            prepared(playground)
            settings = config(playground, tmp_path / "log", partitions=2)
            async with running(settings) as capture:
                change(playground, 0)
                await caught_up(capture, playground.cluster.oracle.next())
                mount.number = errno.EIO
                change(playground, 1)
                await until(lambda: capture.status.storage is not None)
            assert capture.status.state == "stopped"
            mount.number = None
            async with running(settings) as capture:
                change(playground, 2)
                await caught_up(capture, playground.cluster.oracle.next())
            compare(playground.cluster, tmp_path / "log")

    asyncio.run(main())


def test_a_start_waits_for_a_log_that_was_there_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = Mount(tmp_path / "log", monkeypatch)
    monkeypatch.setattr("tidemill.capture.capture.START_S", 0.1)

    async def main() -> None:
        async with Playground(2, resolved_interval=0.05) as playground:
            prepared(playground)
            settings = config(playground, tmp_path / "log", partitions=2)
            async with running(settings) as capture:
                change(playground, 0)
                await caught_up(capture, playground.cluster.oracle.next())
            mount.number = errno.ESTALE
            again = Capture(settings)
            life = asyncio.ensure_future(again.run())
            await until(lambda: json.loads((settings.folder / "status.json").read_text()).get("storage") is not None)
            told = json.loads((settings.folder / "status.json").read_text())
            assert (told["state"], told["start_ts"]) == ("starting", capture.status.start_ts)
            mount.number = None
            await until(lambda: again.status.state == "running")
            again.stop()
            await life
            mount.number = errno.ESTALE
            third = Capture(settings)  # one that is stopped while it waits ends at once, and knows the log at its next start
            life = asyncio.ensure_future(third.run())
            await until(lambda: third.status.storage is not None)
            third.stop()
            await life
            mount.number = None
            assert json.loads((settings.folder / "status.json").read_text())["start_ts"] == capture.status.start_ts

    asyncio.run(main())


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, LogUnavailable), (errno.EACCES, LogRefused)])
def test_a_start_on_storage_that_was_never_reached_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    mount = Mount(tmp_path / "log", monkeypatch)
    monkeypatch.setattr("tidemill.capture.capture.START_S", 0.1)

    async def main() -> None:
        async with Playground(1, resolved_interval=0.05) as playground:
            prepared(playground)
            mount.number = number
            with pytest.raises(kind):
                await Capture(config(playground, tmp_path / "log", data_dir=tmp_path / "data")).run()

    asyncio.run(main())


def test_a_status_that_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Playground(1, resolved_interval=0.05) as playground:
            prepared(playground)
            settings = config(playground, tmp_path / "log", data_dir=tmp_path / "data")
            async with running(settings) as capture:
                monkeypatch.setattr(Path, "replace", _fails)
                await until(lambda: "cannot be written; the capture goes on" in caplog.text)
                change(playground, 0)
                await caught_up(capture, playground.cluster.oracle.next())
                monkeypatch.undo()
            compare(playground.cluster, tmp_path / "log")

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def _fails(path: Path, target: Path) -> Path:
    raise OSError(errno.EIO, "Input/output error", str(path))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Requests to S3 do not wait for long, in this test alone."""
    monkeypatch.setattr(s3, "READ_TIMEOUT_S", 1.0)
    monkeypatch.setattr(s3, "CONNECT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(s3, "REQUESTS", 2)
    s3._client.cache_clear()
    yield
    s3._client.cache_clear()


@pytest.mark.slow
def test_a_log_on_s3_that_goes_away_in_every_way_and_comes_back(tmp_path: Path, impatient: None, s3_server: str) -> None:
    """It answers 503, refuses connections, swallows requests, or loses answers."""
    make_bucket(s3_server, "capture-away")
    rng = random.Random(7)
    proxy = Proxy()
    spoil: list[Callable[[str, str], Fault]] = [lambda method, path: Fault.NONE]
    faults = (*[Fault.NONE] * 4, Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.UNAVAILABLE, Fault.ERROR_AFTER_ALL)
    here = f"s3://test:test@capture-away/log?endpoint_override={s3_server.partition('://')[2]}&scheme=http&region=us-east-1"
    there = f"s3://test:test@capture-away/log?endpoint_override=127.0.0.1:{proxy.port}&scheme=http&region=us-east-1"

    def set_spoil(how: Callable[[str, str], Fault]) -> None:
        spoil[0] = how

    outages: list[tuple[Callable[[], None], Callable[[], None]]] = [
        (lambda: set_spoil(lambda method, path: Fault.UNAVAILABLE), lambda: set_spoil(lambda method, path: Fault.NONE)),
        (proxy.refuse, proxy.forward),
        (proxy.hang, proxy.forward),
        (lambda: set_spoil(lambda method, path: rng.choice(faults)), lambda: set_spoil(lambda method, path: Fault.NONE)),
    ]

    async def main() -> None:
        async with Playground(2, resolved_interval=0.2) as playground:
            prepared(playground)
            settings = config(playground, there, partitions=1, data_dir=tmp_path)
            async with running(settings) as capture:
                for step, (begin, end) in enumerate(outages):
                    change(playground, 3 * step)
                    await caught_up(capture, playground.cluster.oracle.next())
                    begin()
                    change(playground, 3 * step + 1)
                    await until(lambda: capture.status.storage is not None)
                    playground.execute(f"alter table d.t add column c{step} int")
                    await asyncio.sleep(0.5)
                    assert capture.status.state == "running"
                    end()
                    change(playground, 3 * step + 2)
                    await caught_up(capture, playground.cluster.oracle.next())
            compare(playground.cluster, here)

    with spoiled(s3_server, lambda method, path: spoil[0](method, path)) as endpoint:
        proxy.start(int(endpoint.rpartition(":")[2]))
        try:
            asyncio.run(main())
        finally:
            proxy.close()
    assert verify(here).is_whole
