"""Words that people type: the nearest known one, and what a refusal says."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be, or None."""
    found = difflib.get_close_matches(word.lower().replace("_", "-"), sorted(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    guess = nearest(word, known)
    return f"; did you mean `{guess}`?" if guess else ""
