"""`python -m tidemill.demo.warm`: compile the kernels of `tidemill demo` into the cache, so that it shows its first change sooner."""

from __future__ import annotations

import importlib
import logging
import time

MODULES = (
    "tidemill.kernels.deliver.kernels",
    "tidemill.kernels.flow.arrange",
    "tidemill.kernels.flow.claim",
    "tidemill.kernels.flow.merge",
    "tidemill.kernels.open.open_kernel",
    "tidemill.kernels.receive.deframe",
    "tidemill.kernels.receive.match",
    "tidemill.kernels.receive.pending",
    "tidemill.kernels.receive.scan",
    "tidemill.kernels.receive.seal",
    "tidemill.kernels.receive.spill",
    "tidemill.kernels.receive.subs",
    "tidemill.kernels.routing.identity_kernel",
    "tidemill.kernels.rows.mount_kernel",
    "tidemill.kernels.templates.template_kernel",
)
"""Kernels have explicit signatures, so importing a module compiles its own. What is not here is compiled when it is used."""


def warm() -> None:
    """Import the modules."""
    for name in MODULES:
        importlib.import_module(name)


if __name__ == "__main__":
    logging.getLogger("tidemill.kernels").setLevel(logging.ERROR)  # that kernels are compiled is what was asked for
    began = time.monotonic()
    warm()
    print(f"      kernels of {len(MODULES)} modules, in {time.monotonic() - began:.0f} s")
