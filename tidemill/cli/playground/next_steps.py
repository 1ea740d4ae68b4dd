"""What a person types after a demo, or beside a playground."""

from __future__ import annotations

import itertools
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from tidemill.cli.playground.playground_ctl import ADDRESS

PAGE = "127.0.0.1:8301"
"""Where the run serves its page."""


def next_commands(tidemill: str, *, pd: str = ADDRESS, page: str = PAGE, folder: Path | None = None) -> list[str]:
    """Three commands that work as they stand, if PD's port and the page's are free. `tidemill`: how the program is called."""
    place = folder or _free_folder(Path(tempfile.gettempdir()) / "tidemill-first")
    at, changes = "" if pd == ADDRESS else f" --listen {pd}", place / "changes.jsonl"
    sink = f"messages://{changes}?protocol=canal-json&enable-tidb-extension=true"
    return [
        f"{tidemill} playground{at}",
        f"{tidemill} run --pd {pd} --log {place / 'log'} --data-dir {place / 'data'} --status-addr {page} --sink-uri '{sink}'",
        f"{tidemill} show --limit 20 {changes}",
    ]


def _free_folder(wanted: Path) -> Path:
    """A folder that is not there: what an earlier playground left is of another upstream."""
    tried = (wanted if n == 1 else wanted.with_name(f"{wanted.name}-{n}") for n in itertools.count(1))
    return next(path for path in tried if not path.exists())


def program() -> str:
    """How a person calls this program: by its name if that leads here, else by its path."""
    here = Path(sys.argv[0])
    found = shutil.which("tidemill")
    if found is not None and here.exists() and Path(found).samefile(here):
        return "tidemill"
    return shlex.quote(str(here)) if here.name == "tidemill" else f"{shlex.quote(sys.executable)} -m tidemill.cli.main"
