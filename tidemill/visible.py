"""Texts from strangers (names, statements, errors of other programs) as people may see them: in the log, on a terminal. Pure.

A terminal acts upon control characters, a line break begins a line of the log that nobody logged, and direction marks show a name as
another one. All of them become escapes that JSON and TOML know as well: `\\u001b`.
"""

from __future__ import annotations

import re

STATEMENT = 200
"""Characters of an SQL statement in the log and in errors."""

_HIDDEN = r"\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
"""What is not seen: format characters, direction marks, separators of lines, halves of surrogate pairs, tags."""
_ACTED_UPON = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_HIDDEN}]")
_BLANKS = re.compile(r"\s++")


def printable(text: str) -> str:
    """Return a text with an escape for each character that a terminal would act upon, or not show. Line breaks and tabs stay."""
    return _ACTED_UPON.sub(_escape, text)


def cut(text: str, longest: int = STATEMENT) -> str:
    """Return a text of at most so many characters, and a mark where more were."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def one_line(text: str) -> str:
    """Return a text on one line, with escapes."""
    return printable(_BLANKS.sub(_without_breaks, text))


def short_statement(text: str) -> str:
    """Return an SQL statement for the log or an error: one line of at most STATEMENT characters."""
    return one_line(cut(text))


def _without_breaks(found: re.Match[str]) -> str:
    return " " if any(sign in found[0] for sign in "\r\n\t") else found[0]


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 1 << 16:
        return f"\\u{code:04x}"
    code -= 1 << 16
    return f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}"
