"""Chooses how many rows a page has: fewer if the rows are so large that the answer would not fit into a message. Pure."""

from __future__ import annotations

from tidemill.errors import UpstreamError

TARGET = 32 << 20
"""Bytes of an answer above which the next page is smaller. The limit of a message is far above."""


class AnswerTooLarge(UpstreamError):
    """An answer is larger than a message may be."""


class PageSize:
    """The number of rows to ask for. It begins at `most`."""

    def __init__(self, most: int) -> None:
        self.most = self.rows = most

    def came(self, size: int) -> None:
        """Note the size of an answer in bytes."""
        if size > TARGET:
            self.rows = max(self.rows // 2, 1)
        elif size < TARGET // 4:
            self.rows = min(2 * self.rows, self.most)

    def failed(self) -> bool:
        """Halve the page: an answer was too large. Return False if the page was a single row."""
        if self.rows == 1:
            return False
        self.rows //= 2
        return True
