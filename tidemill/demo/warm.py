"""`python -m tidemill.demo.warm`: compile the kernels of `tidemill demo` into the cache, so that it shows its first change sooner."""

from __future__ import annotations

import importlib
import logging
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

GROUPS = (
    (
        "tidemill.kernels.receive.deframe",
        "tidemill.kernels.receive.match",
        "tidemill.kernels.receive.pending",
        "tidemill.kernels.receive.scan",
        "tidemill.kernels.receive.seal",
        "tidemill.kernels.receive.spill",
        "tidemill.kernels.receive.subs",
        "tidemill.kernels.flow.arrange",
        "tidemill.kernels.flow.claim",
        "tidemill.kernels.flow.merge",
    ),
    (
        "tidemill.kernels.open.open_kernel",
        "tidemill.kernels.deliver.kernels",
        "tidemill.kernels.routing.identity_kernel",
        "tidemill.kernels.rows.mount_kernel",
        "tidemill.kernels.templates.template_kernel",
    ),
)
"""The capture's and the delivery's, each in a process. Kernels have explicit signatures, so importing a module compiles its own. What is
not here is compiled when it is used."""


def load(modules: tuple[str, ...]) -> None:
    """Import modules."""
    logging.getLogger("tidemill.kernels").setLevel(logging.ERROR)  # that kernels are compiled is what was asked for
    for name in modules:
        importlib.import_module(name)


if __name__ == "__main__":
    began = time.monotonic()
    with ProcessPoolExecutor(len(GROUPS), get_context("spawn")) as pool:
        list(pool.map(load, GROUPS))
    print(f"      kernels of {sum(map(len, GROUPS))} modules, in {time.monotonic() - began:.0f} s")
