"""Meta keys from a file: the schema history of another cluster, as it was read from its TiKV.

Each line is an object: `key_hex`, `commit_ts`, and the value as `value_hex` or `value_text`; without a value the key is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tidemill.errors import ConfigError
from tidemill.playground.store.cluster import Cluster


def load_meta(cluster: Cluster, lines: Iterable[str]) -> int:
    """Write the keys, with timestamps as told; the cluster's next ones are above them. Returns their number. Raises ConfigError."""
    count = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            key, value, commit_ts = _entry(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"line {number} of the keys to load cannot be read: {error!r}") from None
        cluster.mvcc.write(key, value, commit_ts - 1, commit_ts)
        cluster.oracle.advance(commit_ts)
        count += 1
    return count


def _entry(found: dict[str, object]) -> tuple[bytes, bytes | None, int]:
    key = bytes.fromhex(str(found["key_hex"]))
    commit_ts = found["commit_ts"]
    if not isinstance(commit_ts, int) or commit_ts < 2:
        raise ValueError(f"commit_ts is {commit_ts!r}")
    if key[:1] != b"m":
        raise ValueError(f"{key.hex()} is not a meta key")
    if "value_hex" in found:
        return key, bytes.fromhex(str(found["value_hex"])), commit_ts
    return key, str(found["value_text"]).encode() if "value_text" in found else None, commit_ts
