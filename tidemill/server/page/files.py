"""The page's own files, as they are served: names, media types, and headers that let a browser run nothing but them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidemill.changelog.storage.outcomes import storage_errors

_FOLDER = Path(__file__).with_name("static")
_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
"""Of every file, besides what the API's answers have. Scripts and styles come from this server alone, none is inline, and no script can
make HTML of a text."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page."""

    media_type: str
    content: bytes


@cache
def files() -> Mapping[str, File]:
    """Return the files by the paths at which they are served: `/` is the page. Raises LogUnavailable for a package without them."""
    found = {}
    with storage_errors(str(_FOLDER)):
        for path in sorted(_FOLDER.iterdir()):
            if path.suffix in _TYPES:
                at = "/" if path.name == "index.html" else f"/page/{path.name}"
                found[at] = File(_TYPES[path.suffix], path.read_bytes())
    return found
