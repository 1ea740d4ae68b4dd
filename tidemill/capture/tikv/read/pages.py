"""How many rows a page may have: fewer where they are so large that an answer would not fit into a message. Pure."""

from __future__ import annotations

from tidemill.errors import UpstreamError

TARGET = 32 << 20
"""Bytes of an answer above which the next page is smaller: the limit of a message is far above."""


class AnswerTooLarge(UpstreamError):
    """An answer is larger than a message may be."""


class PageSize:
    """Begins at `most`; the caller asks for `rows`."""

    def __init__(self, most: int) -> None:
        self.most = self.rows = most

    def came(self, size: int) -> None:
        """An answer of so many bytes."""
        if size > TARGET:
            self.rows = max(self.rows // 2, 1)
        elif size < TARGET // 4:
            self.rows = min(2 * self.rows, self.most)

    def failed(self) -> bool:
        """An answer was too large. False: it had one row only, so that it cannot be smaller."""
        if self.rows == 1:
            return False
        self.rows //= 2
        return True
