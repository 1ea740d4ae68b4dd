"""`python -m tidemill.kernels.warm`: compile all kernels into the cache, so that no later run has to."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import time

import tidemill.kernels


def warm() -> list[str]:
    """Import every kernel module. Kernels have explicit signatures, so importing compiles them. Returns the modules' names."""
    names = sorted(m.name for m in pkgutil.walk_packages(tidemill.kernels.__path__, "tidemill.kernels.") if m.name != __name__)
    for name in names:
        importlib.import_module(name)
    return names


if __name__ == "__main__":
    logging.getLogger("tidemill.kernels").setLevel(logging.ERROR)  # that kernels are compiled is what was asked for
    began = time.process_time()
    count = len(warm())
    print(f"{count} kernel modules ready, {time.process_time() - began:.1f} s of CPU")
