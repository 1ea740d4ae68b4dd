"""The program on the format's page reads each row once, also where compaction has left old files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.changelog.logs import START, build_log, put, write_segment

PAGE = Path(__file__).parents[2] / "docs" / "change-log-format.md"


def program(log: Path) -> str:
    [text] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(text).replace('"LOG"', repr(str(log)))


def test_rows_are_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [put(7, i, START + i) for i in range(1, 41)]
    log = build_log(tmp_path, rows, ends=[START + 10, START + 20, START + 30], head=START + 50)
    folder = log / "rows" / "0"
    write_segment(folder, START, START + 20, rows)  # joined; the two inside it are left over
    for part in (1, 2):
        write_segment(folder, START + 30, START + 45, rows[30 + 5 * (part - 1) : 35 + 5 * (part - 1)], (part, 2))
    write_segment(folder, START + 30, START + 45, rows[:35], (1, 3))  # of an interval that was never whole
    exec(program(log), {})
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(name, int(count)) for name, count, *_ in said] == [
        (f"{START:020d}-{START + 20:020d}.arrow", 20),
        (f"{START + 20:020d}-{START + 30:020d}.arrow", 10),
        (f"{START + 30:020d}-{START + 45:020d}.1of2.arrow", 5),
        (f"{START + 30:020d}-{START + 45:020d}.2of2.arrow", 5),
    ]
    assert said[-1][-1] == str(START + 50)


def test_a_hole_is_told(tmp_path: Path) -> None:
    log = build_log(tmp_path, [put(7, 1, START + 1)], ends=[START + 10, START + 20, START + 30])
    next((log / "rows" / "0").glob(f"{START + 10:020d}-*")).unlink()
    with pytest.raises(AssertionError, match="nothing holds"):
        exec(program(log), {})
