"""What was recorded of Canal: frames of conversations between Canal 1.1.8 and its clients, and golden files."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "golden" / "canal"


def frames() -> list[dict[str, Any]]:
    """Return the recorded frames, each with its scenario, packet type (None: garbage) and bytes in hex."""
    with gzip.open(GOLDEN / "frames.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def lines(name: str) -> list[Any]:
    """Return the lines of a golden file."""
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def conversations() -> list[dict[str, Any]]:
    """Return the recorded conversations. Events of each are connection, direction and bytes, empty where a side closed."""
    found = lines("conversations")
    for one in found:
        one["events"] = [(connection, direction, base64.b64decode(data)) for connection, direction, data in one["events"]]
    return found
