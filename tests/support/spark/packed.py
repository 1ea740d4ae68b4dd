"""The package in an archive, as a wheel under the name that `spark.submit.pyFiles` takes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.support.spark.sessions import ROOT


def packed(archive: Path, more: Mapping[str, bytes] = MappingProxyType({})) -> Path:
    """Write the archive with more files, and return it."""
    with zipfile.ZipFile(archive, "w") as made:
        for file in sorted((ROOT / "tidemill").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                made.write(file, file.relative_to(ROOT))
        for name, data in more.items():
            made.writestr(name, data)
    return archive
