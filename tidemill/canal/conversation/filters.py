"""Which entries a client gets: by the name of the table, and by what happened."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tidemill.budget import FILTER, Budget, OverBudget
from tidemill.canal.conversation.patterns import LONGEST, Pattern, PatternError, has_lookaround, is_closed, split_outside
from tidemill.protocols.canal.codes import EventType

Flags = npt.NDArray[np.bool_]
MOST_LISTS = 8
MOST_NAMES = 1 << 16
"""So many names are known by what a filter said of them."""


class FilterError(ValueError):
    """A filter with an expression that does not compile. The text says which, and why."""


class NameFilter:
    """A list of expressions, separated by commas. A name passes that one of them matches, and every name passes an empty list.

    Canal splits at each comma; here one in brackets belongs to its expression: `t\\d{1,2}`. Raises FilterError.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise FilterError(f"a filter of {len(text)} characters: up to {LONGEST} are taken")
        try:
            self._patterns = _patterns([part for part in split_outside(text, ",") if part], Budget(FILTER))
        except OverBudget as error:
            raise FilterError(f"the filter {text[:200]!r} is too large: {error.message}") from None

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def matches(self, name: str) -> bool:
        """Whether `schema.table` passes. A name that is empty always does."""
        lower = name.lower()
        return not name or not self._patterns or any(pattern.matches(lower) for pattern in self._patterns)


def _patterns(parts: list[str], budget: Budget) -> list[Pattern]:
    """The expressions; those without lookaround together as one, so that a name costs the same for a long list."""
    plain = [part for part in parts if not has_lookaround(part)]
    try:
        found = [Pattern(part, budget) for part in parts if has_lookaround(part)]
        return [*found, *_together(plain, budget)] if plain else found
    except PatternError as error:
        raise FilterError(f"the filter {error}") from None


def _together(parts: list[str], budget: Budget) -> list[Pattern]:
    """One expression for all. A bracket that is open in one must not close in another: then each is compiled, to name it."""
    if all(map(is_closed, parts)):
        with suppress(PatternError):
            return [Pattern("|".join(f"(?:{part})" for part in parts), budget)]
    return [Pattern(part, budget) for part in parts]


@lru_cache(maxsize=256)
def name_filter(text: str) -> NameFilter:
    """A filter; those that were used last are kept. Raises FilterError."""
    return NameFilter(text)


class TableFilter:
    """A client's filter (or else its destination's), and what its destination keeps back."""

    def __init__(self, names: NameFilter, black: NameFilter) -> None:
        self.names, self._black = names, black
        self._known: dict[tuple[str, str], bool] = {}
        self._listed: dict[int, tuple[Sequence[tuple[str, str]], Flags]] = {}

    def __call__(self, schema: str, table: str) -> bool:
        """Whether a table passes. What has no table's name does: Canal lets a DDL of a schema through."""
        found = self._known.get((schema, table))
        if found is None:
            name = f"{schema}.{table}" if table else ""
            found = self.names.matches(name) and not (name and self._black and self._black.matches(name))
            if len(self._known) >= MOST_NAMES:
                self._known.clear()
            self._known[schema, table] = found
        return found

    def of_list(self, names: Sequence[tuple[str, str]]) -> Flags:
        """Which of these (schema, table) pass. The same list is asked for again and again."""
        known = self._listed.get(id(names))
        if known is None or known[0] is not names:
            if len(self._listed) >= MOST_LISTS:
                self._listed.clear()
            known = self._listed[id(names)] = names, np.array([self(*name) for name in names], np.bool_)
        return known[1]


@dataclass(frozen=True, slots=True)
class Kinds:
    """What a destination leaves out whatever its table: Canal's filter.dml.*, filter.rows, filter.query.ddl, filter.transaction.entry."""

    without_insert: bool = False
    without_update: bool = False
    without_delete: bool = False
    without_rows: bool = False
    without_ddl: bool = False
    without_boundaries: bool = False

    def rows_pass(self, event_type: int) -> bool:
        """Whether an entry with rows of this type is delivered."""
        if self.without_rows:
            return False
        return not (
            (event_type == EventType.INSERT and self.without_insert)
            or (event_type == EventType.UPDATE and self.without_update)
            or (event_type == EventType.DELETE and self.without_delete)
        )


EVENTS = 256
"""Event types are below it."""


@lru_cache(maxsize=64)
def passing_events(kinds: Kinds) -> Flags:
    """For each number of an event type whether entries with its rows are delivered."""
    return np.array([kinds.rows_pass(event) for event in range(EVENTS)], np.bool_)
