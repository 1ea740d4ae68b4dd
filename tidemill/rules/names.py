"""The nearest known word for a mistyped one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tidemill.budget import current


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most likely meant, or None. A request has so many guesses."""
    budget = current()
    if not budget.left("guesses"):
        return None
    budget.spend("guesses", 1)
    spellings = {_plain(name): name for name in sorted(known, reverse=True)}
    found = difflib.get_close_matches(_plain(word), sorted(spellings), n=1, cutoff=0.6)
    return spellings[found[0]] if found else None


def is_misspelled(word: str, known: Iterable[str]) -> bool:
    """Whether one letter more, less or other than in `word` makes a known word of it."""
    return any(_one_letter_apart(_plain(word), _plain(name)) for name in known)


def _one_letter_apart(one: str, other: str) -> bool:
    start = _same_start(one, other)
    one, other = one[start:], other[start:]
    return max(len(one), len(other)) - _same_start(one[::-1], other[::-1]) == 1


def _same_start(one: str, other: str) -> int:
    """How many letters at the start are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").replace(" ", "-")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?`, or an empty text."""
    guess = nearest(word, known)
    return f"; did you mean `{guess}`?" if guess else ""
