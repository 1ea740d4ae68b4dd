"""The buffer that encoders write to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tidemill.kernels.rows.program import PAD


def _room(size: int) -> npt.NDArray[np.uint8]:
    return np.empty(size, np.uint8)


class Buffer:
    """Bytes that grow by doubling and never shrink, because new blocks cost page faults. Kernels may write PAD bytes past the size."""

    room: Callable[[int], npt.NDArray[np.uint8]] = staticmethod(_room)
    """Allocates memory. Tests replace it by memory that ends at a guard page."""

    def __init__(self, size: int) -> None:
        self.array = self.room(size + PAD)

    @property
    def size(self) -> int:
        """The number of usable bytes."""
        return len(self.array) - PAD

    @property
    def address(self) -> int:
        """The present address of the first byte."""
        return self.array.ctypes.data

    def grow(self, size: int, used: int) -> None:
        """Make room for `size` bytes, keeping the first `used`."""
        if size > self.size:
            bigger = self.room(max(size, 2 * self.size) + PAD)
            bigger[:used] = self.array[:used]
            self.array = bigger
