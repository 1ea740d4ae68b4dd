"""What `make site` adds to MkDocs: the navigation is the index's order, and pages of the repository that docs link to are of the site.

The pages are written for the repository, where links lead to files. A link that leads out of docs/ to a Markdown file takes that file
along, below `source/`; one that leads to something else becomes text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = "source/"
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def navigation(docs: Path = ROOT / "docs") -> list[Any]:
    """The sections of the index, each with the pages that it links to, and behind the README of a folder those that this one links to. A
    page belongs to the first section that names it."""
    seen: set[str] = {"README.md"}
    found: list[Any] = [{"Documentation": "README.md"}]
    for section in (docs / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        named = [page for link in _pages(text, "") for page in (link, *_behind(docs, link))]
        pages = [page for page in dict.fromkeys(named) if page not in seen]
        seen.update(pages)
        if pages:
            found.append({title: pages})
    return found


def _behind(docs: Path, page: str) -> list[str]:
    folder, _, name = page.rpartition("/")
    return _pages((docs / page).read_text(encoding="utf-8"), folder) if folder and name == "README.md" else []


def _pages(text: str, folder: str) -> list[str]:
    """The pages of docs/ that a text in this folder of docs/ links to."""
    links = (
        posixpath.normpath(posixpath.join(folder, target.partition("#")[0])) for _, target in _LINK.findall(text) if "://" not in target
    )
    return [link for link in links if link.endswith(".md") and not link.startswith("..")]


def outside(root: Path = ROOT) -> list[str]:
    """Markdown files that pages link to and that do not lie in docs/, by their path in the repository."""
    found: set[str] = set()
    for page in (root / "docs").rglob("*.md"):
        folder = page.parent.relative_to(root).as_posix()
        for _, target in _LINK.findall(page.read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
            if "://" not in target and path.endswith(".md") and not path.startswith("docs/") and (root / path).is_file():
                found.add(path)
    return sorted(found)


def images(pages: list[str], root: Path = ROOT) -> list[str]:
    """The pictures of pages, by their path in the repository."""
    found = (
        posixpath.normpath(posixpath.join(posixpath.dirname(page), picture))
        for page in pages
        for picture in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", (root / page).read_text(encoding="utf-8"))
    )
    return sorted({picture for picture in found if (root / picture).is_file()})


def relinked(text: str, uri: str, taken: frozenset[str]) -> str:
    """A page's text with links as the site has them. `uri`: the page's place in the site; `taken`: what `outside` found."""
    here = uri.removeprefix(SOURCE) if uri.startswith(SOURCE) else f"docs/{uri}"

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        path, mark, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        if there.startswith("docs/") and there.endswith((".md", ".png", ".svg")):
            place = there.removeprefix("docs/")
        elif there in taken:
            place = SOURCE + there
        else:
            return words
        return f"[{words}]({posixpath.relpath(place, posixpath.dirname(uri) or '.')}{mark}{anchor})"

    return _LINK.sub(link, text)


def on_config(config: Any) -> Any:
    """Of MkDocs: before anything is read."""
    config.nav = navigation()
    return config


def on_files(files: Any, config: Any) -> Any:
    """Of MkDocs: what the site is made of."""
    from mkdocs.structure.files import File, InclusionLevel

    for path in (*outside(), *images(outside())):
        files.append(File.generated(config, SOURCE + path, abs_src_path=str(ROOT / path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Of MkDocs: a page before it becomes HTML."""
    return relinked(markdown, page.file.src_uri, frozenset(outside()))
