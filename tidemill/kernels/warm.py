"""`python -m tidemill.kernels.warm`: compile all kernels into the cache, so that no later run has to. A process for each CPU."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import tidemill.kernels
from tidemill.kernels import entries


def modules() -> list[str]:
    """Import every kernel module. Returns those that have entry points, those that have the most to compile first."""
    for name in sorted(m.name for m in pkgutil.walk_packages(tidemill.kernels.__path__, "tidemill.kernels.") if m.name != __name__):
        importlib.import_module(name)
    return sorted(entries.modules(), key=lambda name: -len(entries.parts_of(name)))


def missing() -> list[str]:
    """The modules whose kernels are not in the cache."""
    return [name for name in modules() if not entries.is_compiled(name)]


def compile_module(name: str) -> None:
    """Compile the kernels of a module, or load them."""
    logging.getLogger("tidemill.kernels").setLevel(logging.ERROR)  # that kernels are compiled is what was asked for
    importlib.import_module(name)
    entries.load(name)


def warm(names: list[str], processes: int) -> None:
    """Compile the kernels of modules."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for _ in pool.map(compile_module, names):
            pass


if __name__ == "__main__":
    began = time.monotonic()
    wanted = missing()
    if wanted:
        warm(wanted, min(len(wanted), os.cpu_count() or 1))
    used = sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    count = len(entries.modules())
    print(f"kernels of {count} modules are ready, {len(wanted)} compiled: {used:.1f} s of CPU, {time.monotonic() - began:.0f} s")
