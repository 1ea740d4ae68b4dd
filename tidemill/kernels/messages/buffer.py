"""Where encoders write: bytes that only grow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tidemill.kernels.rows.program import PAD


def _room(size: int) -> npt.NDArray[np.uint8]:
    return np.empty(size, np.uint8)


class Buffer:
    """Bytes that only grow, by doubling: a fresh large block costs its page faults each time. Kernels may write PAD bytes past its size."""

    room: Callable[[int], npt.NDArray[np.uint8]] = staticmethod(_room)
    """Gives memory. Tests give such that ends where nothing may be written."""

    def __init__(self, size: int) -> None:
        self.array = self.room(size + PAD)

    @property
    def size(self) -> int:
        """Bytes that may be used."""
        return len(self.array) - PAD

    @property
    def address(self) -> int:
        """Where it begins now."""
        return self.array.ctypes.data

    def grow(self, size: int, used: int) -> None:
        """Make room for `size` bytes, keeping the first `used`."""
        if size > self.size:
            bigger = self.room(max(size, 2 * self.size) + PAD)
            bigger[:used] = self.array[:used]
            self.array = bigger
