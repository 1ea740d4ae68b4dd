"""What a simulated run did, step by step, in a form that two runs can be compared by."""

from __future__ import annotations

import hashlib
from itertools import zip_longest
from pathlib import Path

from tidemill.changelog.log_format import OWNER


class Trace:
    """Notes of a run, in order. Long ones are kept as their hash."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, *what: object) -> None:
        """Something happened. What it prints as must not depend on addresses."""
        text = " ".join(repr(one) for one in what)
        self.notes.append(text if len(text) < 200 else f"{text[:80]}… {hashlib.sha256(text.encode()).hexdigest()}")

    def note_log(self, folder: Path) -> None:
        """Every file of a log with its bytes, but those that name the process that wrote it."""
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != OWNER and path.suffix != ".lock":
                self.note(str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest())


def first_difference(one: list[str], other: list[str]) -> str:
    """Where two runs part, empty if they do not."""
    for i, (a, b) in enumerate(zip_longest(one, other)):
        if a != b:
            return f"step {i}: {a} or {b}, after {one[max(0, i - 3) : i]}"
    return ""
