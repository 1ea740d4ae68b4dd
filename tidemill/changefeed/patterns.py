"""Go's regular expressions, which TiCDC's settings are written in, as Python's.

What Python would read in another way is translated or refused.
"""

from __future__ import annotations

import re

from tidemill.errors import ConfigError

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7F", "blank": r"\t ", "cntrl": r"\x00-\x1F\x7F", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z",
    "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_NOT_IN_GO = re.compile(r"\(\?(?:[=!#(>]|<[=!]|P[=>])|\\[1-9]|\\[GZuUNk]|\(\?[a-zA-Z]*[aLux]")
_NOT_HERE = re.compile(r"\\[pPCQE]|\(\?[a-zA-Z]*U|\[\[:\^|\[[^\]\\]*&&")
_PERL_CLASS = re.compile(r"\\[dDwWsSbB]")


def go_regex(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that finds what Go's would find in text without newlines. Raises ConfigError that says what is wrong with it."""
    special = text.replace("\\\\", "")  # without escaped backslashes
    if found := _NOT_IN_GO.search(special):
        raise ConfigError(f"{found[0]!r} is not part of Go's regular expressions")
    if found := _NOT_HERE.search(special):
        raise ConfigError(f"{found[0]!r} is not supported in regular expressions here")
    text = re.sub(r"\[:(\w+):\]", lambda m: _POSIX.get(m[1], m[0]), text).replace(r"\z", r"\Z")
    if "[:" in text:
        raise ConfigError("an unknown `[:class:]`")
    # `$` without (?m) is the very end in Go; names have no newlines, so it is here as well.
    flags |= re.ASCII if _PERL_CLASS.search(text) and text.isascii() else 0
    try:
        return re.compile(text, flags)
    except re.error as error:
        raise ConfigError(f"the regular expression is malformed: {error}") from None
