"""The event loop of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


def run(work: Awaitable[None], seconds: float = 600, runner: Callable[..., Any] = asyncio.run) -> None:
    """Run it in a loop of its own. A test that hangs ends with a TimeoutError where it waits."""

    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await work

    runner(limited())
