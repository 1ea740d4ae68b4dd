"""The bill of materials of the image: the packages of deploy/docker/requirements.lock, with the licences that they declare.

    .venv/bin/python scripts/bill.py licences > THIRD_PARTY.md
    .venv/bin/python scripts/bill.py cyclonedx > dist/tidemill.cdx.json     (make sbom)

Licences are what each installed package says of itself, so the packages have to be installed in the versions of the lock file.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "deploy/docker/requirements.lock"
_PIN = re.compile(r"^([a-z0-9-]+)==([^ \\]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
_WORDS = {"License :: OSI Approved :: ": "", "License :: ": ""}


@dataclass(frozen=True, slots=True)
class Part:
    """A package of the lock file."""

    name: str
    version: str
    hashes: tuple[str, ...]


def parts() -> list[Part]:
    """The packages of the lock file, by name."""
    return [
        Part(name, number, tuple(re.findall(r"[0-9a-f]{64}", hashes)))
        for name, number, hashes in _PIN.findall(LOCK.read_text(encoding="utf-8"))
    ]


def licence(part: Part) -> str:
    """The licence that a package declares. Raises SystemExit if another version of it is installed, or none."""
    try:
        if version(part.name) != part.version:
            raise SystemExit(f"{part.name} is installed as {version(part.name)}, and the lock file has {part.version}: run make setup")
        said = metadata(part.name)
    except PackageNotFoundError:
        raise SystemExit(f"{part.name} is not installed: run make setup") from None
    classified = [one.rpartition(" :: ")[2] for one in said.get_all("Classifier") or () if one.startswith("License :: ")]
    text = said.get("License-Expression") or " and ".join(one for one in classified if one != "OSI Approved") or said.get("License") or ""
    return text.strip().splitlines()[0][:100] if text.strip() else "see its files"


def licences() -> str:
    """The list for people."""
    lines = [
        "# Packages of others in the image",
        "",
        "Written by `scripts/bill.py licences`. The text of each licence lies beside its package, below",
        "`/opt/tidemill/lib/python3.11/site-packages/NAME.dist-info`.",
        "",
        "| package | version | licence, as it declares it |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {one.name} | {one.version} | {licence(one)} |" for one in parts())]) + "\n"


def cyclonedx() -> str:
    """The bill in the form of CycloneDX 1.5. Nothing in it depends on when it was written."""
    components: list[dict[str, Any]] = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{one.name}@{one.version}",
            "name": one.name,
            "version": one.version,
            "purl": f"pkg:pypi/{one.name}@{one.version}",
            "hashes": [{"alg": "SHA-256", "content": sha} for sha in one.hashes],
            "licenses": [{"license": {"name": licence(one)}}],
        }
        for one in parts()
    ]
    project = {"type": "application", "bom-ref": "tidemill", "name": "tidemill", "version": version("tidemill")}
    project["licenses"] = [{"license": {"id": "Apache-2.0"}}]  # type: ignore[assignment]
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": project}, "components": components}
    return json.dumps(bill, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write({"licences": licences, "cyclonedx": cyclonedx}[sys.argv[1]]())
