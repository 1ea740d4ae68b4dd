"""What TiCDC's storage sink wrote for recorded sessions: golden/tikv/ticdc_file_sink."""

from __future__ import annotations

import functools
import tarfile
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "golden" / "tikv" / "ticdc_file_sink"


@functools.cache
def ticdc_files(protocol: str) -> dict[str, bytes]:
    """Content of each file by its path below the sink's root; `csv` or `canal-json`."""
    found = {}
    with tarfile.open(_FOLDER / f"{protocol}.tar.gz") as archive:
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)) is not None:
                found[member.name.removeprefix("./").removeprefix(f"{protocol}/")] = file.read()
    return found
