"""Words that people type: the nearest known one, and what a refusal says."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be, or None."""
    spellings = {_plain(name): name for name in sorted(known, reverse=True)}
    found = difflib.get_close_matches(_plain(word), sorted(spellings), n=1, cutoff=0.6)
    return spellings[found[0]] if found else None


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").replace(" ", "-")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    guess = nearest(word, known)
    return f"; did you mean `{guess}`?" if guess else ""
