"""Hides secrets in text for people: in addresses, in parameters, in settings as TOML or JSON, in HTTP headers. Pure.

An address may be a parameter of another one, encoded once or more. So each separator is also known in its encoded forms: `=` is `%3D`,
`%253D`, … When in doubt, text is hidden. Every line of the log passes here: the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from urllib.parse import unquote

HIDDEN = "xxxxx"

_WORDS = re.compile(r"secret|token|passw|passphrase|pwd|credential|authorization|signature|sasl-user|cookie")
_SHORT_WORDS = frozenset({"pass", "sig", "auth", "jwt", "sas", "apikey"})
_OPEN_KEYS = frozenset(
    {
        *(
            "handle",
            "dispatch",
            "partition",
            "primary",
            "unique",
            "foreign",
            "index",
            "row",
            "message",
            "pk",
            "uk",
            "shard",
            "cluster",
            "sort",
        ),
        *("start", "end", "lock", "raw", "region", "min", "max", "first", "last", "next", "table", "topic", "column", "object"),
    }
)
"""Words that, before `key`, mean a table's key and no secret."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATOR = re.compile(r"[-_.]+")
_CODE = re.compile(r"(?:25)*[0-9A-Fa-f]{2}")
_OFTEN = re.compile(r"%(?:25)+")

_LETTER = "(?:25)*+(?:2[DdEe]|3[0-9]|[46][1-9A-Fa-f]|5[0-9AaFf]|7[0-9Aa])"
"""After a `%`: an encoded character of a name. A name begins neither within one nor after one."""
_BLANK = "(?:25)*+20"
"""After a `%`: an encoded blank. A name may begin in one only where its own characters follow: of `n%20%20%20` each `20` would otherwise
be a name, and each would look for its sign behind all blanks that follow."""
_NAME = re.compile(
    rf"""(?<![\w.-])(?:(?<!%)|(?!{_LETTER}|{_BLANK}(?![\w.-]|%{_LETTER})))(?P<name>(?:[\w.-]|%{_LETTER})++)
    (?P<close>\\{{0,7}}["'])?+
    (?:(?:\s|\+|%{_BLANK})*+(?P<sign>=(?!=)|:(?!//))[ \t]*+|%(?P<depth>(?:25)*)3[Dd])
    (?:[bBrRuU]?(?P<open>\\{{0,7}}["']))?""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"[^&\n]*?(?=&|: |\n|$)")  # up to the parameter's end; in Tidemill's messages `: ` follows an address
_BARE = re.compile(r"[^,}\]\s]*")
_LINE = re.compile(r"[^\n]*")
_OPEN_VALUE = re.compile(r"""(?i)(?:true|false|null|none)(?=[&%,}\]\n\\"']|$)|xxxxx(?!\w)|$""")
_SCHEME = re.compile(r"(?i)(?:basic|bearer|digest|negotiate)\s+")
_PATH = re.compile(r"(?i)/|\./|~/|%(?:25)*2F")

_COLON, _SLASH, _AT = r"(?::|%(?:25)*3A)", r"(?:/|%(?:25)*2F)", r"(?:@|%(?:25)*40)"
_PARAMETER = re.compile(r"[^&\s]+")
_CODED_START = (
    rf"(?:(?:^|=|%(?:25)*3D){_SLASH}{_SLASH}|%(?:25)*3A{_SLASH}{_SLASH}|:%(?:25)*2F{_SLASH}|:/%(?:25)*2F"
    rf"|(?<==)(?=[^=%&\s]{{0,256}}%(?:25)*3A(?!{_SLASH})))"
)
_CODED_USER = re.compile(rf"(?i)({_CODED_START})((?:(?!{_COLON}|{_SLASH}|{_AT})[^&\s])*)({_COLON}|(?={_AT}))")
_CODED_AT = re.compile(_AT)

_WORD = r"""(?<![^\s"'=(<,;`])"""
_USER = re.compile(rf"(?:(?<=:)|{_WORD})//(?:\[[0-9A-Fa-f:.%]*\])?[^/@:\s]*:")  # the scheme may be missing
_TOKEN = re.compile(  # in Azure's addresses the user is a container
    rf"(?i)((?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)://|{_WORD}//)[^/?#@:\s]+(?=@)"
)
_ADDRESS = re.compile(r"(?<=[A-Za-z0-9+.-])://")
_PORT = re.compile(r"[0-9]{1,5}(?=[/?,:\s]|$)")
_PLACE_END = re.compile(r"\s|\?(?=[\w-]+=)")
_NO_SCHEME = re.compile(rf"{_WORD}[\w.+-]{{1,128}}:(?!//|[0-9]{{1,5}}(?:[/?,:\s]|$))")
_HOST_AT = re.compile(r"@(?=[\w\[])(?!(?:[0-9]{15,20}|COMMIT_TS)(?![\w.]))")
"""A TSO is not a host: --skip-row's DATABASE.TABLE:KEY@COMMIT_TS."""


def redact(text: str) -> str:
    """Return the text with passwords, tokens of addresses, and values of secret settings replaced by `xxxxx`."""
    text = _hide_values(text)
    if "%" in text:
        text = _PARAMETER.sub(lambda word: _hide_coded(word[0]) if "%" in word[0] else word[0], text)
    text = "\n".join(_hide_passwords(line) if "//" in line else line for line in text.split("\n"))
    return re.sub(r"\S+", lambda word: _hide_without_scheme(word[0]), _TOKEN.sub(rf"\1{HIDDEN}", text)) if "@" in text else text


# Settings


def _hide_values(text: str) -> str:
    pieces, at = [], 0
    while found := _NAME.search(text, at):
        end = _value_end(text, found) if _is_secret(text, found) else None
        pieces.append(text[at : found.end()])
        at = found.end()
        if end is not None and end > at:
            scheme = _SCHEME.match(text, at, end)
            pieces += [scheme[0] if scheme else "", HIDDEN]
            at = end
    return "".join([*pieces, text[at:]])


def _is_secret(text: str, found: re.Match[str]) -> bool:
    """Return whether a setting is a secret, by its name. A boolean is none. A bare `key` is one in an address, unless its value is a
    file."""
    name, before = found["name"], text[found.start() - 1 : found.start()]
    coded = _CODE.match(name) if before == "%" else None
    name = _decoded(name[coded.end() :] if coded else name)
    if _OPEN_VALUE.match(text, found.end()):
        return False
    if name.lower() == "key":
        return (before in ("?", "&") or coded is not None) and not _PATH.match(text, found.end())
    return _says_secret(name)


def _decoded(name: str) -> str:
    """Return a name without its encodings. What reads an address decodes them, so any letter may be encoded, once or more."""
    return unquote(_OFTEN.sub("%", name))


def _says_secret(name: str) -> bool:
    words = [word for word in _SEPARATOR.split(_HUMP.sub("-", name).lower()) if word]
    if _WORDS.search("-".join(words)) or not _SHORT_WORDS.isdisjoint(words):
        return True
    for before, word in zip(["", *words], words, strict=False):
        if word in ("key", "keys") and before and before not in _OPEN_KEYS:
            return True
        if len(word) > 3 and word.endswith("key") and word.removesuffix("key") not in _OPEN_KEYS:
            return True
    return False


def _value_end(text: str, found: re.Match[str]) -> int | None:
    """Return where the value ends; None: the text after the name is prose."""
    at = found.end()
    if found["sign"] is None:
        return _coded_end(text, at, len(found["depth"] or "") // 2)
    if quote := found["open"]:
        return _quoted_end(text, at, quote)
    if found["sign"] == "=":
        return _end(_PLAIN, text, at)
    if found["close"]:
        return _end(_BARE, text, at)
    name = found["name"].lower()
    return _end(_LINE, text, at) if name.endswith("authorization") or name.startswith("x-") else None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _quoted_end(text: str, at: int, quote: str) -> int:
    """Return the closing quote of the same depth: JSON within JSON has `\\"`. A value without one ends with its line."""
    depth, mark = len(quote) - 1, quote[-1]
    inside = rf"[^\\\n]|\\++(?!{mark})|(?!\\{{{depth}}}{mark})\\++{mark}" if depth else rf"[^\\{mark}\n]|\\."
    return _end(re.compile(f"(?:{inside})*+"), text, at)


def _coded_end(text: str, at: int, depth: int) -> int:
    """Return the start of the next parameter, of the same address or of one around it."""
    return _end(re.compile(rf"(?:(?!%(?:25){{0,{min(depth, 8)}}}26)[^&\s])*+"), text, at)


# Users of addresses


def _hide_coded(word: str) -> str:
    """Hide the user and password of an encoded address: from the user's colon to the last `@`. Without a colon the user is a token."""
    ats = [found.start() for found in _CODED_AT.finditer(word)]
    user = _CODED_USER.search(word)
    if not ats or user is None or ats[-1] < user.end():
        return word
    start = user.end() if user[3] and ats[-1] > user.end() else user.end(1)
    return word[:start] + HIDDEN + word[ats[-1] :]


def _hide_without_scheme(word: str) -> str:
    """Hide the password of USER:PASSWORD@HOST, up to the last `@`."""
    user = _NO_SCHEME.search(word) if "@" in word else None
    if user is None:
        return word
    ats = [found.start() for found in _HOST_AT.finditer(word, user.end() + 1)]
    return word[: user.end()] + HIDDEN + word[ats[-1] :] if ats else word


def _hide_passwords(line: str) -> str:
    """Hide passwords of addresses. They may contain any character, because they are often not encoded.

    A number that may be a port is one if no `@` follows before the query.
    """
    ats = [found.start() for found in re.finditer("@", line)]
    if not ats:
        return line
    others = [found.start() for found in _ADDRESS.finditer(line)]
    stops = [found.start() for found in _PLACE_END.finditer(line)]
    pieces, at = [], 0
    for user in _USER.finditer(line):
        start = user.end()
        if user.start() < at:
            continue
        if _PORT.match(line, start):
            end = _last(ats, start, _first(stops, start, len(line)))
        else:
            end = _last(ats, start, _first(others, start, len(line)))
            end = _last(ats, start, len(line)) if end is None else end
        if end is not None:
            pieces += [line[at : user.start() + 2] if end == start else line[at:start], HIDDEN]
            at = end
    return "".join([*pieces, line[at:]])


def _first(places: list[int], start: int, default: int) -> int:
    """Return the first place from `start` on."""
    found = bisect_left(places, start)
    return places[found] if found < len(places) else default


def _last(places: list[int], start: int, end: int) -> int | None:
    """Return the last place from `start` to before `end`."""
    found = bisect_left(places, end) - 1
    return places[found] if found >= 0 and places[found] >= start else None
