"""A server's state as lines of text: all that is wrong is told, in any width, and text of others moves no cursor."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from tests.support.server.page_scenes import HTML, as_json, failure, healthy_capture, held_capture, info, many, mixed, scene
from tidemill.capture.status import CaptureStatus
from tidemill.changefeed.states import State
from tidemill.cli.shared.frame import Sort, coloured, duration, frame, plain, scrollable


def told(infos: Any = None, capture: CaptureStatus | None = None) -> dict[str, Any]:
    return dict(as_json(scene(mixed() if infos is None else infos, capture or held_capture())[1]))


def lines(found: dict[str, Any], width: int = 120, **how: Any) -> list[str]:
    return [plain(line) for line in frame(found, width, **how)]


def test_what_is_wrong_comes_first_with_what_to_do() -> None:
    found = lines(told())
    text = "\n".join(found)
    assert found[0].startswith("Tidemill v0.1.0  10.0.3.7:8300")
    assert found[1].startswith("7 changefeeds  3 normal  1 finished  1 stopped  1 warning  1 failed  5,384 rows/s")
    assert "held up: shop.orders for 5 min 34 s; lock; region 4711 at store 3 tikv-3:20160; transaction" in text
    order = [line.split()[0] for line in found if line and line.split()[0] in {one.id for one in mixed()}]
    assert order == ["items-avro", "orders-eu", "audit", "backfill", "lake", "orders", "replica-mysql"]
    at = next(i for i, line in enumerate(found) if line.startswith("items-avro"))
    assert found[at + 1].startswith("  TM:ErrUnsupportedValue: row of shop.orders")
    assert any(line.startswith("  to do: Change the row") for line in found)
    assert any(line.strip().startswith("tried again at") for line in found)


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("height", [None, 1, 5, 24, 60])
def test_a_frame_fits_its_terminal(width: int, height: int | None) -> None:
    found = frame(told(), width, height=height, footer="q quit" * 40 if height else "")
    assert all(cell_len(plain(line)) <= width for line in found)
    if height is not None and height > 4:
        assert len(found) == height


def test_a_narrow_terminal_keeps_name_state_and_lag() -> None:
    title = next(line for line in lines(told(), 46) if line.startswith("CHANGEFEED"))
    assert title.split() == ["CHANGEFEED", "STATE", "CHECKPOINT", "LAG"]
    assert "SINK" in next(line for line in lines(told(), 120) if line.startswith("CHANGEFEED"))


def test_sorted_by_each_column() -> None:
    def first(sort: Sort) -> str:
        found = lines(told(), sort=sort)
        return found[next(i for i, line in enumerate(found) if line.startswith("CHANGEFEED")) + 1].split()[0]

    assert [first(sort) for sort in (Sort.STATE, Sort.LAG, Sort.RATE, Sort.NAME)] == ["items-avro", "backfill", "replica-mysql", "audit"]


def test_a_long_list_scrolls_to_its_end_and_no_further() -> None:
    found = told(many(100), healthy_capture())
    assert scrollable(found, 120) == 100
    shown = lines(found, 120, height=30, skip=10_000, sort=Sort.NAME, footer="keys")
    assert shown[-1] == "keys"
    assert shown[-2].startswith("feed-099")
    assert lines(found, 120, height=30, skip=3, sort=Sort.NAME)[5].startswith("feed-003")


def test_text_of_others_moves_no_cursor() -> None:
    evil = "\x1b[2J\x1b]0;title\x07\r\nx\u202e\u0000" + HTML
    feed = info("evil", State.FAILED, sink=evil, error=failure(evil, evil, evil))
    capture = replace(held_capture(), paused=evil, state=evil, error={"code": evil, "message": evil})
    for one in capture.held_tables:
        one |= {"table": evil, "last_error": evil}
    for line in frame(told([feed], capture), 120):
        assert plain(line).isprintable()
        assert all("\x1b" not in text for text, _ in line)


def test_wide_letters_count_twice() -> None:
    capture = held_capture()
    capture.held_tables[0]["table"] = "商店.订单" * 30
    assert all(cell_len(line) <= 60 for line in lines(told([], capture), 60))


def test_nothing_yet() -> None:
    found = lines(told([], CaptureStatus()))
    assert "There are no changefeeds." in found
    assert any("resolved ts lag -" in line for line in found)


def test_processes_that_do_not_run() -> None:
    found = told([], healthy_capture())
    found["processes"] = [{"name": "delivery", "pid": None, "restarts": 2, "last_error": {"code": "TM:ErrX", "message": "no room"}}]
    assert "the delivery process does not run: TM:ErrX: no room" in lines(found)


def test_colours_are_switched_off_behind_each_piece() -> None:
    for line in frame(told(), 120):
        text = coloured(line)
        assert text.count("\x1b[0m") == text.count("\x1b[") / 2


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


def test_now_is_the_servers() -> None:
    found = told([], healthy_capture())
    found["now"] = time.mktime((2026, 11, 24, 10, 33, 15, 0, 0, -1))
    assert lines(found)[0].endswith("10:33:15")
