"""Many subscriptions for the watchdog, without a capture."""

from __future__ import annotations

import numpy as np

from tidemill.capture.tikv.watchdog.causes import Cause
from tidemill.capture.tikv.watchdog.detect import StuckThresholds, Survey, Watch
from tidemill.kernels.receive.layout import ACTIVE, SUB


class Fleet:
    """Subscriptions as the matcher has them."""

    def __init__(self, n: int) -> None:
        self.subs = np.zeros(n, SUB)
        self.subs["state"], self.subs["initialized"], self.subs["resolved"] = ACTIVE, 1, 100
        self.subs["sub_range"] = np.arange(1, n + 1)
        self.subs["partition"] = np.arange(n) % 2
        self.watch = Watch(2, StuckThresholds(silent=10, frozen=20, scanning=100))
        self.now = 0.0

    def pass_time(self, seconds: int, *, quiet: tuple[int, ...] = (), still: tuple[int, ...] = ()) -> None:
        """Each second a message comes for all but `quiet`, and all but `still` move on."""
        heard = [i for i in range(len(self.subs)) if i not in quiet]
        moving = [i for i in heard if i not in still]
        for _ in range(seconds):
            self.now += 1
            self.subs["seen"][heard] = int(self.now * 1000)
            self.subs["resolved"][moving] += 1
            self.watch.look(Survey(self.subs.copy(), int(self.now * 1000)), self.now)

    def stuck(self) -> dict[int, Cause]:
        return {s.sub_range: s.cause for s in self.watch.stuck(self.now)}
