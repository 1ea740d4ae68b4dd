"""Finds files on file systems that other machines, or other processes, serve: while such a file is mapped, its pages may become
unreadable."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_SERVED = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"),
        *("orangefs", "ocfs2", "gfs2", "fuse", "fuseblk"),
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


@lru_cache(maxsize=256)
def is_remote(device: int) -> bool:
    """Return whether files of a device (`st_dev`) are on a file system served from elsewhere; False if that is unknown."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return kind_of(lines, f"{os.major(device)}:{os.minor(device)}").partition(".")[0] in _SERVED


def kind_of(lines: list[str], device: str) -> str:
    """Return the type of a device's file system (MAJOR:MINOR) from lines of mountinfo; empty if it is not listed."""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        if fields.split(" ", 3)[2:3] == [device]:
            return rest.partition(" ")[0]
    return ""
