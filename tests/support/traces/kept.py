"""A tracer that keeps what it is given."""

from __future__ import annotations

from tidemill.traces.span import Parent, Span


class Kept:
    """Spans that were sent, and what caused them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.parents: list[Parent | None] = []

    def send(self, span: Span, parent: Parent | None = None) -> None:
        self.spans.append(span)
        self.parents.append(parent)

    def close(self) -> None: ...


def outline(span: Span) -> str:
    """The names of a tree: `batch(plan, job(task(route)))`."""
    below = ", ".join(outline(child) for child in span.children)
    return f"{span.name}({below})" if below else span.name
