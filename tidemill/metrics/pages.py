"""Pages of the HTTP server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page."""

    content_type: str
    body: Callable[[], bytes]


def json_page(value: Callable[[], Mapping[str, Any]]) -> Page:
    """Return a page of JSON."""
    return Page("application/json", lambda: (json.dumps(value(), indent=2) + "\n").encode())
