"""`python -m tidemill.process.program MODULE …`: loads a module, see `loading`, and runs its `main` with the other arguments."""

from __future__ import annotations

import importlib
import sys

from tidemill.process.loading import loading


def main() -> None:
    """Entry point."""
    name = sys.argv.pop(1)
    with loading():
        module = importlib.import_module(name)
    module.main()


if __name__ == "__main__":
    main()
