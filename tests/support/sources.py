"""The source of the package as Python's syntax trees, for tests that hold rules against it.

There are 1,200 modules: to parse them all takes three seconds, and to visit each node as long again. So a tree is made once, and a test
parses only the files whose text has what it looks for."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "tidemill"


def files(having: str = "", folder: Path = PACKAGE) -> Iterator[tuple[Path, str]]:
    """Yield the Python files of a folder whose text has a match of a regular expression, and their text."""
    wanted = re.compile(having)
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if wanted.search(text):
            yield path, text


@cache
def tree(path: Path) -> ast.Module:
    """Parse a file, once within `kept`."""
    return ast.parse(path.read_text(encoding="utf-8"))


@contextmanager
def kept() -> Iterator[None]:
    """Keep trees while many are looked at: 300 MB. They have no cycles, and to look for some among a million nodes, again and again, takes
    longer than to parse them all."""
    gc.disable()
    try:
        yield
    finally:
        tree.cache_clear()
        gc.enable()


def statements(inside: ast.Module) -> Iterator[ast.stmt]:
    """Yield every statement, however deep. It is much quicker than to visit all expressions as well."""
    todo: list[ast.AST] = [inside]
    for block in todo:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in getattr(block, name, ()):
                todo.append(inner)
                if isinstance(inner, ast.stmt):
                    yield inner
