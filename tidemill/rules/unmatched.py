"""Rules of a filter that select no table that is there: most often a misspelled name. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidemill.rules.names import did_you_mean
from tidemill.rules.table_filter import TableFilter

_EVERYTHING = "*.*"
_MOST = 1_000_000
"""Matches that are tried: this is for people's filters, not for generated ones."""


def unmatched(rules: Iterable[str], tables: Collection[tuple[str, str]], *, case_sensitive: bool = False) -> list[str]:
    """Return a warning for each rule that lets tables in, and matches none of `tables`: (schema, table). Raises ConfigError for a rule that
    cannot be parsed."""
    asked = [rule for text in rules if (rule := text.strip()) and rule[0] not in "!#" and rule != _EVERYTHING]
    if len(asked) * len(tables) > _MOST:
        return []
    known = {f"{schema}.*" for schema, _ in tables} | {f"{schema}.{table}" for schema, table in tables}
    found = []
    for rule in asked:
        alone = TableFilter([rule], case_sensitive=case_sensitive)
        if not any(alone.matches(schema, table) for schema, table in tables):
            guess = did_you_mean(rule, known)
            found.append(f"filter rule {rule!r} matches no table that is there now{guess or '; one that comes later is taken'}")
    return found
