"""What was recorded of Canal: frames of conversations between Canal 1.1.8 and its clients, and golden files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "canal"


def frames() -> list[dict[str, Any]]:
    """Return the recorded frames, each with its scenario, packet type (None: garbage) and bytes in hex."""
    with gzip.open(GOLDEN / "frames.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]
