"""Memory of large transactions is that of a file without a name; a full disk is told before anything is written."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.faults.disks import small_disk
from tidemill.binlog.drainer.rows import spill
from tidemill.binlog.drainer.rows.spill import Spill
from tidemill.errors import DiskLow

MIB = 1 << 20


def mapped(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines() if str(folder) in line]


def test_large_memory_is_of_a_file_that_is_gone_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "LEAST", MIB)
    room = Spill(tmp_path)
    small, large = room(MIB - 1), room(MIB)
    assert (len(small), len(mapped(tmp_path)), list(tmp_path.iterdir())) == (MIB - 1, 1, [])
    large[:] = 7
    part = large[MIB - 8 :].view("i8")
    del large
    assert part.tolist() == [0x0707070707070707]
    del part
    assert mapped(tmp_path) == []


def test_a_full_disk_is_told_and_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "LEAST", MIB)
    with small_disk(tmp_path / "disk", "4m") as disk:
        room = Spill(disk)
        with pytest.raises(DiskLow, match=f"{disk} has no room for {5 * MIB} bytes of a large transaction: No space left"):
            room(5 * MIB)
        held = room(4 * MIB)
        with pytest.raises(DiskLow):
            room(MIB)
        held[:] = 1
        del held
        assert len(room(4 * MIB)) == 4 * MIB


def test_a_file_system_that_cannot_reserve_room_gets_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "LEAST", MIB)

    def refused(handle: int, mode: int, offset: int, size: int) -> int:
        ctypes.set_errno(errno.EOPNOTSUPP)
        return -1

    monkeypatch.setattr(spill, "_libc", SimpleNamespace(fallocate=refused))
    large = Spill(tmp_path)(MIB)
    large[:] = 7
    assert (mapped(tmp_path), list(tmp_path.iterdir())) == ([], [])
