"""Parts are appended to in writes of a bounded size, and a new part is never an old one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemill.sinks import parts


def test_long_texts_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system takes less of a piece than it was given."""
    sizes = []
    write = os.write

    def stingy(descriptor: int, data: memoryview | bytes) -> int:
        sizes.append(len(data))
        return write(descriptor, data[:700])

    monkeypatch.setattr(parts, "PIECE", 1000)
    monkeypatch.setattr(os, "write", stingy)
    head, text = b"head", os.urandom(2500)
    parts.append_to(tmp_path / "a", head, memoryview(text), fresh=True)
    assert sizes == [4, 1000, 1000, 1000, 400]
    parts.append_to(tmp_path / "a", b"", b"tail", fresh=False)
    assert (tmp_path / "a").read_bytes() == head + text + b"tail"


def test_only_a_new_part_is_made(tmp_path: Path) -> None:
    parts.append_to(tmp_path / "a", b"1", fresh=True)
    with pytest.raises(FileExistsError):
        parts.append_to(tmp_path / "a", b"2", fresh=True)
    with pytest.raises(FileNotFoundError):
        parts.append_to(tmp_path / "b", b"2", fresh=False)
    assert (tmp_path / "a").read_bytes() == b"1"
