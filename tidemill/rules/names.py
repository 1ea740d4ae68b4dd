"""The nearest known word for a mistyped one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most likely meant, or None."""
    spellings = {_plain(name): name for name in sorted(known, reverse=True)}
    found = difflib.get_close_matches(_plain(word), sorted(spellings), n=1, cutoff=0.6)
    return spellings[found[0]] if found else None


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").replace(" ", "-")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?`, or an empty text."""
    guess = nearest(word, known)
    return f"; did you mean `{guess}`?" if guess else ""
