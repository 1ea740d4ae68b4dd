"""Pages of the HTTP server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page."""

    content_type: str
    body: Callable[[], bytes]
    headers: Mapping[str, str] = field(default_factory=dict)
    asked: Callable[[Mapping[str, str]], bytes] | None = None
    """Makes the body by the parameters of the query, where they count."""

    def content(self, query: Mapping[str, str]) -> bytes:
        """Return the body of a request."""
        return self.body() if self.asked is None else self.asked(query)


def asked_page(value: Callable[[Mapping[str, str]], Mapping[str, Any]]) -> Page:
    """Return a page of JSON that depends on the query."""

    def asked(query: Mapping[str, str]) -> bytes:
        return json.dumps(value(query)).encode()

    return Page("application/json", lambda: asked({}), asked=asked)


def json_page(value: Callable[[], Mapping[str, Any]]) -> Page:
    """Return a page of JSON."""
    return Page("application/json", lambda: (json.dumps(value(), indent=2) + "\n").encode())
