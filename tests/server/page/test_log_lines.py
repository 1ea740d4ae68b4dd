"""The last lines of the log: a ring that readers wait on, and the end of a file that others write."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill import logs
from tidemill.server.page.log_lines import FIRST_READ, KEPT, LONGEST, FileEnd, Ring


def test_lines_behind_a_number() -> None:
    ring = Ring()
    assert ring.after(-1) == (0, [])
    ring.add("one\ntwo")
    assert ring.after(-1) == (2, ["one", "two"])
    assert ring.after(1) == (2, ["two"])
    assert ring.after(2) == (2, [])
    assert ring.after(99) == (2, ["one", "two"])  # a number of a server before this one


def test_the_ring_is_bounded_in_lines_and_in_their_length() -> None:
    ring = Ring()
    for i in range(KEPT + 5):
        ring.add(f"line {i}")
    last, lines = ring.after(0)
    assert (last, len(lines), lines[0]) == (KEPT + 5, KEPT, "line 5")
    ring.add("y" * 10 * LONGEST)
    assert ring.after(last)[1] == ["y" * LONGEST]


def test_who_waits_is_woken_by_a_line_of_another_thread() -> None:
    async def work() -> list[str]:
        ring = Ring()
        ring.add("before")
        threading.Timer(0.05, ring.add, ["now"]).start()
        await ring.wait(1, 30)
        return ring.after(1)[1]

    assert asyncio.run(work()) == ["now"]


def test_nobody_waits_for_what_is_there_nor_after_the_end() -> None:
    async def work() -> None:
        ring = Ring()
        ring.add("there")
        await ring.wait(0, 3600)
        waiting = asyncio.create_task(ring.wait(1, 3600))
        await asyncio.sleep(0)
        ring.close()
        await waiting
        await ring.wait(1, 3600)

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_wait_ends_by_itself() -> None:
    asyncio.run(asyncio.wait_for(Ring().wait(0, 0.01), 30))


# ---- a file


def test_a_file_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "log"
    end = FileEnd(file)
    assert end.read() == ""
    file.write_text("one\ntwo\nthr")
    assert end.read() == "one\ntwo\n"
    with open(file, "a") as more:
        more.write("ee\n")
    assert end.read() == "three\n"
    assert end.read() == ""


def test_a_file_that_is_moved_away_or_cut_begins_again(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\n")
    end = FileEnd(file)
    end.read()
    file.rename(tmp_path / "log.1")
    file.write_text("after\n")
    assert end.read() == "after\n"
    file.write_text("cut\n")
    assert end.read() == "cut\n"


def test_of_a_large_file_the_end_is_read_from_the_next_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("".join(f"line {i:06d}\n" for i in range(FIRST_READ // 4)))
    lines = FileEnd(file).read().splitlines()
    assert lines[-1] == f"line {FIRST_READ // 4 - 1:06d}"
    assert all(len(line) == 11 for line in lines)
    assert sum(len(line) + 1 for line in lines) <= FIRST_READ


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"\xff\xfe\n")
    assert FileEnd(file).read() == "\ufffd\ufffd\n"


# ---- the process's own log


@pytest.fixture
def heard() -> Iterator[list[str]]:
    logger = logging.getLogger("tidemill")
    before = logger.handlers[:], logger.level, logger.propagate
    logs.setup("info")
    found: list[str] = []
    logs.listen(found.append)
    yield found
    logger.handlers[:], logger.level, logger.propagate = before


def test_the_log_is_heard_as_it_is_written_without_secrets(heard: list[str]) -> None:
    logging.getLogger("tidemill.server.x").warning("sink %s", "mysql://root:secret-1@host/")
    (line,) = heard
    assert "] [WARN] [tidemill.server.x] sink mysql://root:xxxxx@host/" in line


def test_lines_of_children_are_passed_on(heard: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    logs.relay(["one", "sasl-password=hunter2"])
    logs.relay([])
    assert heard == ["one\nsasl-password=xxxxx"]
    assert capsys.readouterr().err == "one\nsasl-password=hunter2\n"
