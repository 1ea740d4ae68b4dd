"""`python -m tidemill.kernels.warm [1/2]`: compile all kernels into the cache, or a part of them, so that no later run has to."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
import time

import tidemill.kernels


def warm(part: int = 1, parts: int = 1) -> list[str]:
    """Import every kernel module, or every `parts`-th. Kernels have explicit signatures, so importing compiles them. Returns the modules'
    names."""
    names = sorted(m.name for m in pkgutil.walk_packages(tidemill.kernels.__path__, "tidemill.kernels.") if m.name != __name__)
    chosen = names[part - 1 :: parts]
    for name in chosen:
        importlib.import_module(name)
    return chosen


if __name__ == "__main__":
    logging.getLogger("tidemill.kernels").setLevel(logging.ERROR)  # that kernels are compiled is what was asked for
    began = time.process_time()
    part, _, parts = (sys.argv[1] if len(sys.argv) > 1 else "1/1").partition("/")
    count = len(warm(int(part), int(parts)))
    print(f"{count} kernel modules ready, {time.process_time() - began:.1f} s of CPU")
