"""The kernels that the set-up of the demo compiles are there."""

from __future__ import annotations

from importlib.util import find_spec

from tidemill.demo.warm import GROUPS


def test_the_modules_are_there_and_named_once() -> None:
    names = [name for group in GROUPS for name in group]
    assert len(set(names)) == len(names)
    assert [name for name in names if find_spec(name) is None] == []
