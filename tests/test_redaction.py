"""No part of a secret is shown, wherever in an address it is and however the address is written."""

from __future__ import annotations

import re
import string
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.config.uri import parse_sink_uri
from tidemill.errors import ConfigError, redact

NAMES = ("sasl-password", "sasl-user", "secret-access-key", "access-key", "session-token", "sig", "basic-password", "account-key")
SIGNS = "@:/?#=%+,;.!$*~_-"

letters = st.text("QZXJKVWY", min_size=4, max_size=8)
"""A part of a secret, which nothing else has."""
parts = st.lists(letters, min_size=1, max_size=4)


@st.composite
def secrets(draw: st.DrawFn, signs: str) -> str:
    """Parts with signs between them."""
    found = draw(parts)
    return "".join(part + draw(st.text(signs, max_size=2)) for part in found[:-1]) + found[-1]


@st.composite
def spelled(draw: st.DrawFn, name: str) -> str:
    """A name with some letters encoded, some of them twice, in either case."""
    found = ""
    for letter in name:
        code = f"{ord(letter):02X}"
        way = draw(st.sampled_from(("", "", "", "%", "%25", "%2525")))
        found += letter if not way else way + (code if draw(st.booleans()) else code.lower())
    return found


@st.composite
def places(draw: st.DrawFn) -> str:
    """An authority with a secret in it, with a scheme or without."""
    user = draw(st.text(string.ascii_lowercase, max_size=5))
    secret = draw(secrets(SIGNS))
    scheme = draw(st.sampled_from(("kafka://", "http://", "s3://", "//", "mysql://")))
    if draw(st.booleans()):
        secret = quote(secret, safe="")
    return f"{scheme}{user}:{secret}@host{draw(st.sampled_from(('', ':9092')))}/topic"


@st.composite
def parameters(draw: st.DrawFn) -> str:
    """A parameter with a secret: its value encoded, or not where that could be."""
    name = draw(spelled(draw(st.sampled_from(NAMES))))
    value = draw(secrets(SIGNS.replace("%", "")))
    return f"{name}={quote(value, safe='') if draw(st.booleans()) else value}"


@st.composite
def addresses(draw: st.DrawFn) -> str:
    """An address, perhaps a parameter of another one, encoded as often as it is deep."""
    place = draw(st.one_of(places(), st.just("kafka://host:9092/topic"), st.just("//host/topic")))
    query = [draw(parameters()) for _ in range(draw(st.integers(0, 2)))] + ["protocol=csv"]
    found = f"{place}?{'&'.join(draw(st.permutations(query)))}"
    for _ in range(draw(st.integers(0, 2))):
        found = f"http://outer/p?x=1&address={quote(found, safe='')}&y=2"
    return found


def shows(text: str) -> list[str]:
    """Pieces of secrets in a text."""
    return re.findall("[QZXJKVWY]{3,}", text)


@settings(max_examples=150)
@given(addresses(), st.sampled_from(("{}", "sink URI {}: no protocol", "{} and b", '{{"sink": "{}", "x": 1}}', "'{}'", "log={}")))
def test_no_part_of_a_secret_is_shown(address: str, around: str) -> None:
    shown = redact(around.format(address))
    assert shows(shown) == []
    assert redact(shown) == shown


@settings(max_examples=200)
@example("s3://:JJJJ/JJJJ@host/topic?protocol=csv")
@given(addresses())
def test_what_is_said_of_a_sink_shows_no_secret(address: str) -> None:
    try:
        uri = parse_sink_uri(address)
    except ConfigError as error:
        said = str(error)
    else:
        said = f"{uri} {uri!r} {uri.warnings}"
    assert shows(said) == []


def test_a_row_that_is_to_be_left_out_is_shown() -> None:
    named = "--skip-row 'shop.orders:7480000000000000685f7280000011@470616483922444289' goes on without this row"
    assert redact(named) == named
    assert redact("expected DATABASE.TABLE:KEY@COMMIT_TS with KEY in hex") == "expected DATABASE.TABLE:KEY@COMMIT_TS with KEY in hex"
    assert redact("user:secret@470616483922444289.example.org") == "user:xxxxx@470616483922444289.example.org"
    assert redact("user:secret@10.0.0.1") == "user:xxxxx@10.0.0.1"


MEGABYTE = 1 << 20
"""In quadratic time, a text of so many characters takes an hour or more: the test's timeout then ends it."""


@pytest.mark.parametrize(
    ("before", "unit", "after"),
    [
        ("n", "%20", ""),
        ("n", "%2520", ""),
        ("n", "%20+ ", ""),
        ("n", "%20n", ""),
        ("%", "25", "41=x"),
        ("%", "2525", "password=QQQQ"),
        ("%41 ", "a", ""),
        ("//a@b ", "%3A%2F%2F", ""),
        ("", "=%2F%2F", "%40"),
        ("", "//a:", "@"),
        ("", "password=", ""),
        ("", "?key=%25", ""),
    ],
)
def test_time_is_linear_in_the_text(before: str, unit: str, after: str) -> None:
    redact(before + unit * (MEGABYTE // len(unit)) + after)


def test_encoded_blanks_stand_between_a_name_and_its_sign() -> None:
    for blanks in ("%20", "%20" * 40, "+%2520 ", "%252520"):
        for name in ("password", "%20password", "x%20sasl-password", "%2520token"):
            assert shows(redact(f"{name}{blanks}=QXZJ-KVWY")) == [], (name, blanks)
