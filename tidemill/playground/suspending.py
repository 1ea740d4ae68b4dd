"""Lets plain functions wait for the event loop: SQL is written without `await`, and yet waits until a Pump has a binlog.

`run` calls a function in a greenlet of its own. Wherever the function calls `wait`, the greenlet rests, and the event loop goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tidemill.extras import extra

with extra("playground"):
    import greenlet

T = TypeVar("T")


async def run(function: Callable[[], T]) -> T:
    """Call a function that may `wait`, and return its result. Raises what it raises."""
    child = greenlet.greenlet(function)
    step: Any = child.switch()
    while not child.dead:
        try:
            value = await step
        except BaseException as error:  # of whatever kind: it is raised where the function waits
            step = child.throw(error)
        else:
            step = child.switch(value)
    result: T = step
    return result


def wait(awaitable: Awaitable[T]) -> T:
    """Wait for something, inside a function that `run` runs. Raises what it raises."""
    parent = greenlet.getcurrent().parent
    if parent is None:
        raise RuntimeError("nothing can be waited for outside of tidemill.playground.suspending.run")
    result: T = parent.switch(awaitable)
    return result
