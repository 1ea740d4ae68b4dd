"""Disks that are soon full."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of this size (128k, 24m), mounted at `place`. Skips the test if that is not allowed."""
    with small_disk_if_allowed(place, size) as mounted:
        if not mounted:
            pytest.skip("needs root to mount a small disk")
        yield place


@contextmanager
def small_disk_if_allowed(place: Path, size: str) -> Iterator[bool]:
    """The same for a test that has more to look at. Yields whether it is mounted; if not, `place` is a folder."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    mounted = shutil.which("mount") is not None and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)
