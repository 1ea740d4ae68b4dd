"""The watch over an event loop names what holds the loop, and nothing else, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.support.thorough import few_of
from tidemill.metrics.stalls import Held, Moment, Stall, StallWatch, spent

Runner = Callable[[Coroutine[Any, Any, None]], None]
LONG = 0.6
runners = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


def work(seconds: float) -> None:
    """Use a CPU for this long."""
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass


def wait_in_a_call(read: int) -> None:
    """A call to the operating system that waits: as one to a disk that hangs."""
    assert os.read(read, 1) == b"x"


def hold_the_lock() -> None:
    """C code that lets no other thread run."""
    begin = time.thread_time()
    n = 10_000_000
    while time.thread_time() - begin < LONG:
        n *= 2
        sum(range(n))


def told_of(run: Runner, *bodies: Callable[[], None], between: bool = False) -> list[Stall]:
    """What is told of callbacks of a loop."""
    told: list[Stall] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with StallWatch(told.append, tick=0.01):
            for body in bodies:
                done = loop.create_future()
                loop.call_soon(body)
                if between:
                    loop.call_soon(done.set_result, None)
                    await done
            answered = [loop.create_future() for _ in range(20)]
            for one in answered:  # time for the watch to look again
                await asyncio.to_thread(lambda: None)
                loop.call_later(0.02, one.set_result, None)
                await one

    run(main())
    return told


def first_told(attempt: Callable[[], list[Stall]]) -> Stall:
    """What the watch tells of an attempt that holds the loop once. On a busy machine the watch itself waits for a CPU, which is subtracted,
    so that it does not see each one."""
    for _ in range(30):
        told = attempt()
        if told:
            [stall] = told
            return stall
    raise AssertionError("none of 30 attempts was told")


@runners
def test_who_works_too_long_is_told(run: Runner) -> None:
    stall = first_told(lambda: told_of(run, lambda: work(LONG)))
    assert stall.seconds > 0.1
    assert "in work" in "".join(stall.stack)
    assert stall.files[0] == __file__
    assert str(stall).startswith("the event loop stood still for")


@runners
def test_who_waits_in_a_call_is_told(run: Runner) -> None:
    read, write = os.pipe()

    def attempt() -> list[Stall]:
        timer = threading.Timer(LONG, os.write, (write, b"x"))
        timer.start()
        told = told_of(run, lambda: wait_in_a_call(read))
        timer.join()
        return told

    assert "in wait_in_a_call" in "".join(first_told(attempt).stack)


@runners
def test_a_step_of_a_coroutine_is_told(run: Runner) -> None:
    async def inner() -> None:
        await asyncio.sleep(0)
        work(LONG)

    async def main(told: list[Stall]) -> None:
        with StallWatch(told.append, tick=0.01):
            await asyncio.create_task(inner())
            await asyncio.sleep(0.1)

    def attempt() -> list[Stall]:
        told: list[Stall] = []
        run(main(told))
        return told

    assert "in inner" in first_told(attempt).stack[0]


@runners
def test_c_code_that_lets_nobody_look_is_told(run: Runner) -> None:
    stall = first_told(lambda: [s for s in told_of(run, hold_the_lock) if s.blind or "hold_the_lock" in "".join(s.stack)][:1])
    assert stall.seconds > 0


@pytest.mark.slow
@runners
def test_many_short_callbacks_are_not_one_long_one(run: Runner) -> None:
    assert told_of(run, *[lambda: work(0.03)] * 20) == []
    assert told_of(run, *[lambda: work(0.03)] * 20, between=True) == []


@runners
def test_a_coroutine_that_lets_others_in_is_not_told(run: Runner) -> None:
    told: list[Stall] = []

    async def main() -> None:
        with StallWatch(told.append, tick=0.01):
            for _ in range(20):
                work(0.03)
                await asyncio.sleep(0)

    run(main())
    assert told == []


BUSY = """
import asyncio, sys, uvloop
from tests.metrics.test_stalls import work
from tidemill.metrics.stalls import StallWatch

async def main():
    print("loaded", flush=True)
    sys.stdin.readline()
    with StallWatch(lambda stall: print(stall, flush=True), tick=0.01):
        print("begun", flush=True)
        for _ in range(30):
            work(0.02)
            await asyncio.sleep(0.005)

(uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", [pytest.param("asyncio", marks=pytest.mark.thorough("uvloop is the one that runs")), "uvloop"])
def test_a_process_that_gets_no_cpu_tells_nothing(loop: str) -> None:
    """Beside three others that never rest, on one CPU, and with less right to it."""
    cpu = min(os.sched_getaffinity(0))
    meekly = ("taskset", "-c", str(cpu), "nice", "-n", "3")
    child = subprocess.Popen([*meekly, sys.executable, "-c", BUSY, loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "loaded\n"
    others = [
        subprocess.Popen(
            [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"],
            stdout=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    try:
        assert [one.stdout.readline() for one in others if one.stdout is not None] == [b"\n"] * 3
        said = child.communicate("\n")[0]
    finally:
        for one in others:
            one.kill()
            one.communicate()
    assert (child.returncode, said) == (0, "begun\n")


def test_a_process_that_is_stopped_for_a_while_tells_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", BUSY, "uvloop"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert [child.stdout.readline() for _ in range(2)] == ["loaded\n", "begun\n"]
    for _ in range(3):
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        time.sleep(0.3)  # the standstill itself
        child.send_signal(signal.SIGCONT)
    assert child.communicate()[0] == ""


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (Moment(10.01, 5.01, 1.0, 2.0), (0.01, False)),  # worked
        (Moment(10.01, 5.0, 1.0, 2.0), (0.01, False)),  # blocked
        (Moment(10.01, 5.0, 1.0, 2.01), (0.0, False)),  # waited for a CPU, or for a lock whose owner did
        (Moment(10.01, 5.004, 1.0, 2.004), (0.006, False)),
        (Moment(10.01, 5.004, 1.0), (0.004, False)),  # nobody looked: only what it surely did
        (Moment(10.5, 5.4, 1.0, 2.0), (0.4, True)),  # it had the lock
        (Moment(10.5, 5.0, 1.0, 2.0), (0.0, True)),  # the process was stopped
        (Moment(10.5, 5.4, 1.49, 2.5), (0.4, False)),  # the watch had no CPU, and the loop did
        (Moment(10.5, 5.4, 1.3, 2.5), (0.2, True)),
        (Moment(10.5, 5.4, 1.0, 2.1, hole=0.015), (0.4, False)),  # the look itself took long
    ],
)
def test_what_counts_between_two_moments(now: Moment, expected: tuple[float, bool]) -> None:
    took, blind = spent(Moment(10.0, 5.0, 1.0, 2.0), now, 0.01)
    assert (round(took, 6), blind) == expected


def test_a_wait_for_a_cpu_is_taken_back_when_the_kernel_has_counted_it() -> None:
    """The kernel counts it when it is over; the watch looks meanwhile."""
    held = Held(Moment(10.0, 5.0, 0.0, 2.0), 0.01)
    assert round(held.until(Moment(10.5, 5.0, 0.0, 2.0)), 6) == 0.51
    assert round(held.until(Moment(12.0, 5.03, 0.0, 3.97)), 6) == 0.04
    held.skip(Moment(12.0, 5.03, 0.0, 3.97), Moment(13.0, 5.9, 0.0, 3.97))
    assert round(held.until(Moment(13.2, 6.0, 0.0, 4.0)), 6) == 0.21
    assert round(Held(Moment(10.0, 5.0, 0.0, 2.0), 0.0).until(Moment(10.1, 5.0, 0.0, 1.0)), 6) == 0.1, (
        "a thread that ended takes its waits along"
    )


PROGRAM = """
import gc, random, sys, threading, time
from tidemill.metrics.stalls import stack_of

class Closed:
    def __init__(self):
        self.me = self
    def __del__(self):
        time.sleep(2e-5)  # releases the interpreter's lock, as closing a socket does

source = "".join(
    f"def f{n}(depth, {', '.join(f'a{i}=None' for i in range(n * 3))}):\\n"
    "    if depth: return random.choice(functions)(depth - 1)\\n"
    "    Closed(); time.sleep(1e-5)\\n"
    for n in range(8)
)
names = {"random": random, "Closed": Closed, "time": time, "functions": []}
over = threading.Event()
walks = 0

def watch(thread):
    global walks
    while not over.is_set():
        for frame in stack_of(thread):
            frame.f_lineno, frame.f_code
        walks += 1

sys.setswitchinterval(1e-5)
gc.set_threshold(7, 1000, 1000)
watching = threading.Thread(target=watch, args=(threading.get_ident(),))
watching.start()
depth = 0
while walks < 3000:
    exec(source, names)  # functions of frames of different sizes, which go and come
    names["functions"][:] = [names[f"f{n}"] for n in range(8)]
    random.choice(names["functions"])(depth % 60)
    depth += 1
over.set()
watching.join()
assert gc.isenabled()
"""


@pytest.mark.parametrize("attempt", few_of(range(3), 1))
def test_a_stack_that_changes_while_garbage_is_collected_is_read(attempt: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"attempt {attempt}: {done.stderr}"
