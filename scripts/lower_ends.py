"""Prints the lower end of each range of pyproject.toml as a requirement, for an environment that has them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

LOWER = re.compile(r"([A-Za-z0-9_.-]+)>=([^,]+)")


def lower_ends() -> dict[str, str]:
    """The lowest version by package, extras included."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for name, ranges in project["optional-dependencies"].items() if name not in ("all", "dev", "docs") for one in ranges]
    return {found[1]: found[2] for one in (*project["dependencies"], *extras) if (found := LOWER.match(one))}


if __name__ == "__main__":
    for package, version in lower_ends().items():
        print(f"{package}=={version}")
