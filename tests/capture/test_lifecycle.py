"""Tasks that run together end together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemill.capture.lifecycle import Lifecycle, together
from tidemill.capture.tikv.client import channels
from tidemill.capture.tikv.client.channels import Channels
from tidemill.errors import LogUnavailable, UpstreamError


def test_the_first_failure_ends_the_others_before_it_is_raised() -> None:
    told: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise UpstreamError("first")

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            told.append("ended")
            raise LogUnavailable("while it ended")

    async def main() -> None:
        with pytest.raises(UpstreamError, match="first") as caught:
            await together(goes_on(), together(fails(), goes_on()), goes_on())
        assert type(caught.value) is UpstreamError
        assert told == ["ended"] * 3
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_life_that_is_stopped_ends_all_that_works_together() -> None:
    async def main() -> None:
        life, ended = Lifecycle(), []

        async def works(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)

        asyncio.get_running_loop().call_soon(life.stop)
        await life.lead(together(works("a"), works("b")))
        assert sorted(ended) == ["a", "b"]

    asyncio.run(main())


def test_channels_with_replaced_certificates_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hourly rotation of certificates must not leave connections open forever."""

    class Channel:
        def __init__(self) -> None:
            self.closed = asyncio.Event()

        async def close(self) -> None:
            self.closed.set()

    class Certificates:
        version = 0

        def stamp(self) -> tuple[int, ...]:
            return (self.version,)

        def credentials(self) -> None:
            return None

    async def main() -> None:
        made: list[Channel] = []

        def secure_channel(*_: Any, **__: Any) -> Channel:
            made.append(Channel())
            return made[-1]

        monkeypatch.setattr(channels.grpc.aio, "secure_channel", secure_channel)
        monkeypatch.setattr(channels, "RETIRE_AFTER", 0.0)
        certificates = Certificates()
        ours = Channels(certificates)  # type: ignore[arg-type]
        first = ours.get("a:1")
        assert ours.get("a:1") is first
        certificates.version = 1
        second = ours.get("a:1")
        assert second is not first
        assert not first.closed.is_set(), "calls on it may be under way"
        await first.closed.wait()
        assert not second.closed.is_set()
        monkeypatch.setattr(channels, "RETIRE_AFTER", 3600.0)
        certificates.version = 2
        third = ours.get("a:1")
        await ours.close()
        assert second.closed.is_set()
        assert third.closed.is_set()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
