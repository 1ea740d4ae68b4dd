"""Words that readers stumbled over stay out of pages, docstrings, comments and messages. CONTRIBUTING.md says how code reads."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = {
    r"anew": "again",
    r"who comes first": "which one is first",
    r"for ever": "forever",
    r"in vain": "without success",
    r"nobody but": "only",
    r"so it is with": "the same holds for",
    r"in the same breath": "right after",
    r"thereof|wherein|whereupon": "of it, in which, and then",
    r"(?<!there )(?:is|are) no (?!longer|more|one)": "is not a",
    r"as it were|so to speak": "(leave it out)",
    r"(?:an?|the|next|last|each|failed|new|single) tr(?:y|ies)(?! to)": "attempt",
}
"""An expression, and what to write instead."""


def texts() -> list[Path]:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    code = [path for folder in ("tidemill", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    return [path for path in (*pages, *code) if path != Path(__file__) and not path.stem.endswith(("_pb2", "_pb2_grpc"))]


@cache
def read_texts() -> list[tuple[Path, str, str]]:
    """Each file's text, and the same in small letters, once for all words."""
    return [(path, text, text.lower()) for path in texts() for text in [path.read_text(encoding="utf-8")]]


@pytest.mark.parametrize("words", BANNED)
def test_words_that_readers_stumble_over(words: str) -> None:
    found, wrong = [], re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)
    assert words == words.lower()
    near = re.compile(words)  # several times quicker, in small letters, than an expression that takes both
    for path, text, small in read_texts():
        if near.search(small):
            lines = enumerate(text.splitlines(), 1)
            found += [f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for number, line in lines if wrong.search(line)]
    assert found == [], f"write {BANNED[words]!r} instead"
