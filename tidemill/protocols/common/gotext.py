"""Strings as Go's encoding/json and strconv.Quote write them. (Floats are in `tidemill.tidb.types.floats`.)

TiCDC uses these Go functions, and consumers compare bytes. Python's `json` and `repr` differ in HTML escapes, in U+2028/2029, in invalid
UTF-8, and in the Unicode version that decides what is printable.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from importlib.resources import files

_SHORT = {0x22: '\\"', 0x5C: "\\\\", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t"}
_LINE_SEPARATORS = {0x2028: "\\u2028", 0x2029: "\\u2029"}
_PLAIN_ESCAPES = {i: f"\\u{i:04x}" for i in range(32)} | _SHORT | _LINE_SEPARATORS
_HTML_ESCAPES = _PLAIN_ESCAPES | {0x3C: "\\u003c", 0x3E: "\\u003e", 0x26: "\\u0026"}
_QUOTED = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 0x5C: "\\\\", 0x22: '\\"'}


def printable_ranges() -> Iterator[tuple[int, int]]:
    """Yield first and last of each range of runes that Go 1.21+ (Unicode 15.0) prints unescaped. Python 3.11 has Unicode 14 only."""
    yield 0x20, 0x7E
    text = files(__package__).joinpath("printable_runes.txt").read_text("ascii")
    for line in text.splitlines():
        if not line.startswith("#"):
            first, _, last = line.partition("-")
            yield int(first, 16), int(last, 16)


@functools.cache
def _printable() -> bytes:
    table = bytearray(0x110000)
    for first, last in printable_ranges():
        table[first : last + 1] = b"\1" * (last - first + 1)
    return bytes(table)


def runes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (code point, its bytes) as Go reads a string. A byte that belongs to no valid rune comes alone, with -1."""
    at = 0
    while at < len(data):
        first = data[at]
        size = 1 if first < 0x80 else 2 if 0xC2 <= first <= 0xDF else 3 if 0xE0 <= first <= 0xEF else 4 if 0xF0 <= first <= 0xF4 else 0
        piece = data[at : at + size]
        try:
            point = ord(piece.decode()) if size else -1
        except (UnicodeDecodeError, TypeError):
            point = -1
        if point < 0:
            piece = data[at : at + 1]
        yield point, piece
        at += len(piece)


def json_string(data: bytes, *, html: bool = True) -> bytes:
    """Return a quoted JSON string as encoding/json writes it. Bytes that are not UTF-8 become U+FFFD each, written as an escape."""
    return quoted(data, _HTML_ESCAPES if html else _PLAIN_ESCAPES)


def quoted(data: bytes, escapes: Mapping[int, str]) -> bytes:
    """Return a quoted string with these escapes. Bytes that are not UTF-8 become U+FFFD each, written as an escape."""
    try:
        return b'"' + data.decode().translate(escapes).encode() + b'"'
    except UnicodeDecodeError:
        pass
    parts = (b"\\ufffd" if point < 0 else escapes[point].encode() if point in escapes else raw for point, raw in runes(data))
    return b'"' + b"".join(parts) + b'"'


def go_quote(data: bytes) -> bytes:
    """Return strconv.Quote's text without its outer quotes."""
    printable = _printable()
    out = bytearray()
    for point, raw in runes(data):
        if point < 0:
            out += b"\\x%02x" % raw[0]
        elif point in _QUOTED:
            out += _QUOTED[point].encode()
        elif printable[point]:
            out += raw
        elif point < 0x20 or point == 0x7F:
            out += b"\\x%02x" % point
        elif point < 0x10000:
            out += b"\\u%04x" % point
        else:
            out += b"\\U%08x" % point
    return bytes(out)


_ESCAPED = {"a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v", "\\": b"\\", '"': b'"'}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


def unquote(text: str) -> bytes:
    """Undo `go_quote`. Raises ValueError for an escape that strconv.Quote does not write."""
    out = bytearray()
    at = 0
    while True:
        mark = text.find("\\", at)
        if mark < 0:
            out += text[at:].encode("utf-8", "surrogatepass")
            return bytes(out)
        out += text[at:mark].encode("utf-8", "surrogatepass")
        letter = text[mark + 1 : mark + 2]
        if letter in _ESCAPED:
            out += _ESCAPED[letter]
            at = mark + 2
            continue
        digits = text[mark + 2 : mark + 2 + _HEX_DIGITS.get(letter, 0)]
        if not digits or len(digits) != _HEX_DIGITS[letter] or not all(c in "0123456789abcdefABCDEF" for c in digits):
            raise ValueError(f"{text[mark : mark + 10]!r} at character {mark} is not an escape of a quoted string")
        number = int(digits, 16)
        if letter == "x":
            out.append(number)
        elif number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise ValueError(f"{text[mark : mark + 10]!r} at character {mark} is not a character")
        else:
            out += chr(number).encode()
        at = mark + 2 + len(digits)
