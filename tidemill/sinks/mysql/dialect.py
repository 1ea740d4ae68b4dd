"""TiDB's DDLs as MySQL and MariaDB take them. Pure.

What only TiDB has stands in its special comments, which others do not read: AUTO_RANDOM, CLUSTERED, SHARD_ROW_ID_BITS, PRE_SPLIT_REGIONS,
AUTO_ID_CACHE, TTL, placement, global indexes. The rest is in `RULES`. What no rule changes is sent as it is.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.sinks.mysql.session import Server

_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`|\"(?:[^\"\\]|\\.|\"\")*\"|/\*.*?\*/|[A-Za-z0-9_$]+|\s+|.", re.S)


class For(enum.Flag):
    """Servers that a rule is for."""

    MYSQL = enum.auto()
    MARIADB = enum.auto()
    BOTH = MYSQL | MARIADB


@dataclass(frozen=True, slots=True)
class Rule:
    """Words of a statement and what stands for them; `about` is what the docs say and what is logged. Words are upper case."""

    servers: For
    words: tuple[str, ...]
    instead: str
    about: str


RULES = (
    Rule(For.MARIADB, ("NOT", "ENFORCED"), "", "MariaDB has no CHECK that is not enforced; Tidemill's sessions do not check"),
    Rule(For.MARIADB, ("ENFORCED",), "", "every CHECK is enforced in MariaDB"),
    Rule(For.MARIADB, ("INVISIBLE",), "IGNORED", "an invisible index"),
    Rule(For.MARIADB, ("VISIBLE",), "NOT IGNORED", "a visible index"),
    Rule(For.MARIADB, ("UTF8MB4_0900_AI_CI",), "utf8mb4_uca1400_ai_ci", "a collation that MariaDB does not have"),
    Rule(For.MARIADB, ("UTF8MB4_0900_BIN",), "utf8mb4_nopad_bin", "a collation that MariaDB does not have"),
    Rule(For.BOTH, ("VECTOR",), "LONGTEXT", "a vector is kept as its text"),
)

_LEFT_OUT = (
    (For.BOTH, re.compile(r"ALTER (TABLE|DATABASE) .* SET TIFLASH REPLICA ", re.S | re.I), "TiFlash replicas are TiDB's own"),
    (For.BOTH, re.compile(r"CREATE GLOBAL TEMPORARY TABLE ", re.I), "the rows of a temporary table are each session's own"),
    (For.BOTH, re.compile(r"CREATE VECTOR INDEX ", re.I), "a vector is kept as its text, without an index"),
    (For.MARIADB, re.compile(r"CREATE (UNIQUE )?INDEX .*\(\(", re.S | re.I), "MariaDB has no indexes of expressions"),
    (
        For.MARIADB,
        re.compile(
            r"ALTER TABLE \S+ ADD (INDEX|KEY) *\S*? *\(\((?!.*, *(ADD|DROP|MODIFY|CHANGE|RENAME|ALTER) ).*\)\)\s*;?\s*$", re.S | re.I
        ),
        "MariaDB has no indexes of expressions",
    ),
)
"""Statements that are left out, and why."""


def rewritten(query: str, server: Server) -> tuple[str, list[str]]:
    """Return a statement as a server takes it, empty for one that it has no use for, and what was changed."""
    if server.is_tidb:
        return query, []
    mine = For.MARIADB if server.is_mariadb else For.MYSQL
    for servers, pattern, about in _LEFT_OUT:
        if mine in servers and pattern.match(query):
            return "", [about]
    tokens = _TOKEN.findall(query)
    out: list[str] = []
    told: dict[str, None] = {}
    at = 0
    while at < len(tokens):
        rule, end = _rule_at(tokens, at, mine)
        if rule is None:
            out.append(tokens[at])
            at += 1
            continue
        told[rule.about] = None
        out.append(rule.instead)
        at = end
        if rule.words == ("VECTOR",):
            at = _after_length(tokens, at)
    return "".join(out), list(told)


def _rule_at(tokens: list[str], at: int, mine: For) -> tuple[Rule | None, int]:
    for rule in RULES:
        if mine not in rule.servers:
            continue
        end = _matched(tokens, at, rule.words)
        if end and not (rule.words == ("VECTOR",) and _is_index(tokens, end)):
            return rule, end
    return None, at


def _matched(tokens: list[str], at: int, words: tuple[str, ...]) -> int:
    """Return the end of the words that stand at a place, 0 if others do."""
    for number, word in enumerate(words):
        while number and at < len(tokens) and tokens[at].isspace():
            at += 1
        if at >= len(tokens) or tokens[at].upper() != word:
            return 0
        at += 1
    return at


def _words_from(tokens: list[str], at: int) -> Iterator[str]:
    return (token for token in tokens[at:] if not token.isspace())


def _is_index(tokens: list[str], at: int) -> bool:
    return next(_words_from(tokens, at), "").upper() in ("INDEX", "KEY")


def _after_length(tokens: list[str], at: int) -> int:
    """Return the place behind `(n)`, if that comes next."""
    return at + 3 if tokens[at : at + 1] == ["("] and tokens[at + 2 : at + 3] == [")"] else at
