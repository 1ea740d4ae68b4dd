"""Pages can be read and followed: prose is wrapped, and links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
WIDEST = 120


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are neither of a table nor of code."""
    in_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith(("|", "    ")):
            yield number, line


def anchors(path: Path) -> set[str]:
    """What its headings are linked by, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_prose_is_wrapped(path: Path) -> None:
    assert [(number, line) for number, line in prose(path) if len(line) > WIDEST] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file) if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def linked(page: Path) -> set[Path]:
    """The pages of docs/ that a page links to. One that is linked with an anchor counts, too."""
    links = re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for link in links if "://" not in link and link.endswith(".md")}


def test_two_clicks_lead_to_every_page() -> None:
    """README leads to the index, which links each page, or links one that does."""
    index = ROOT / "docs" / "README.md"
    assert index in linked(ROOT / "README.md")
    near = linked(index)
    reached = {index} | near | {there for page in near for there in linked(page)}
    assert sorted(page.relative_to(ROOT).as_posix() for page in set((ROOT / "docs").rglob("*.md")) - reached) == []
    direct = {page for page in (ROOT / "docs").glob("*.md") if page != index}
    assert direct - near == set()


def test_the_site_has_the_indexs_order_and_every_page() -> None:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts/site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    named = [page for entry in hooks.navigation() for pages in entry.values() for page in ([pages] if isinstance(pages, str) else pages)]
    assert len(named) == len(set(named))
    assert sorted(named) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md"))
    text = "[a](../tidemill/x/TYPES.md#b) [c](d.md) [e](../tools/f.py) [g](https://h) [i](#j)"
    taken = frozenset({"tidemill/x/TYPES.md"})
    assert hooks.relinked(text, "k.md", taken) == "[a](source/tidemill/x/TYPES.md#b) [c](d.md) e [g](https://h) [i](#j)"
    assert hooks.relinked("[a](../../docs/k.md)", "source/bench/x/TYPES.md", taken) == "[a](../../../k.md)"
