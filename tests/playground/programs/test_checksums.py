"""Jars that were fetched are those that are listed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tidemill.playground.programs.maven import ProgramError, check_sums

LISTED = "".join(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}.jar\n" for name in ("one", "two"))


def fetched(folder: Path, **jars: str) -> Path:
    (folder / "lib").mkdir()
    for name, content in jars.items():
        (folder / f"{name}.jar").write_text(content)
    return folder


def test_the_jars_that_are_listed(tmp_path: Path) -> None:
    check_sums("x", fetched(tmp_path, one="one", two="two"), LISTED)


@pytest.mark.parametrize(
    ("jars", "named"),
    [
        ({"one": "one"}, "two.jar"),
        ({"one": "one", "two": "two", "lib/three": "3"}, "lib/three.jar"),
        ({"one": "one", "two": "2"}, "two.jar"),
        ({"one": "one", "two": "two", "three": ""}, "three.jar"),
    ],
)
def test_any_other_is_named(tmp_path: Path, jars: dict[str, str], named: str) -> None:
    with pytest.raises(ProgramError, match=f"fetched for x is not what was expected: {named}"):
        check_sums("x", fetched(tmp_path, **jars), LISTED)
