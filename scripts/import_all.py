"""Imports every module of Tidemill: what a version of a dependency breaks first."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import tidemill


def main() -> None:
    """Import all; name what failed and end with 1 if anything did."""
    failed = 0
    names = sorted(module.name for module in pkgutil.walk_packages(tidemill.__path__, "tidemill."))
    for name in names:
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except (ImportError, AttributeError, TypeError, RuntimeError) as error:
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"{len(names)} modules, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
