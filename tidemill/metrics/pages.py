"""What a path of the HTTP server answers with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """What a path answers with."""

    content_type: str
    body: Callable[[], bytes]


def json_page(value: Callable[[], Mapping[str, Any]]) -> Page:
    """A page of JSON."""
    return Page("application/json", lambda: (json.dumps(value(), indent=2) + "\n").encode())
