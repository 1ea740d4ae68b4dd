"""Imports every module of Tidemill: what a version of a dependency breaks first."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import tidemill


def main() -> None:
    """Import all; name what failed and end with 1 if anything did."""
    failed = 0
    root = Path(str(tidemill.__file__)).parent
    names = sorted(".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__") for file in root.rglob("*.py"))
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
