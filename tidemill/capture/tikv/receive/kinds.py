"""What a capture does with each thing that TiKV's change feed can send, as one table. Pure.

`ROWS`: a row by its kind (LogType), by whether it has a key, and by the state of its subscription; the `match` kernel decides by
`VERDICTS`, made of it. What it takes (HANDLE) it then judges as the head of kernels/receive/match.py says; `CAUSES` in matcher.py are
the counted reasons for which a row that was taken ends its subscription. `FIELDS`: every field of the messages. The errors of a
subscription are in `REACTIONS` of regions/reactions.py. tests/capture/tikv/receive/test_kinds.py compares the table with the messages
of wire/cdcpb.proto and tries every entry.

TiKV makes a row for each key of a write before it knows whether there is something to send, and a row that stays empty leaves it when
the subscription covers its whole region: that is UNKNOWN without a key. Lock-only commits (SELECT ... FOR UPDATE, a pessimistic UPDATE that
changes nothing) send one for each key.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tidemill.kernels.receive import layout as L


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to a row before (`scanning`) and after INITIALIZED (`live`): HANDLE, END (the subscription ends, for the counted reason
    V_UNKNOWN_TYPE), or the word of the matcher's context that counts the row, which is left out."""

    scanning: int
    live: int


_TAKEN = Rule(L.HANDLE, L.HANDLE)
_NO_KEY = Rule(L.X_RANGE, L.X_RANGE)
_ENDS = Rule(L.END, L.END)

ROWS: Mapping[tuple[int, bool], Rule] = MappingProxyType(
    {
        # kind, has a key
        (L.UNKNOWN, False): Rule(L.X_LOCK_ONLY, L.X_LOCK_ONLY),
        (L.UNKNOWN, True): _ENDS,  # it may have changed
        (L.PREWRITE, False): _NO_KEY,
        (L.PREWRITE, True): _TAKEN,
        (L.COMMIT, False): _NO_KEY,
        (L.COMMIT, True): _TAKEN,
        (L.ROLLBACK, False): _NO_KEY,
        (L.ROLLBACK, True): _TAKEN,
        (L.COMMITTED, False): _NO_KEY,
        (L.COMMITTED, True): _TAKEN,
        (L.INITIALIZED, False): Rule(L.HANDLE, L.X_AGAIN),
        (L.INITIALIZED, True): Rule(L.HANDLE, L.X_AGAIN),
        (L.NEWER, False): Rule(L.X_SKIPPED, L.X_SKIPPED),
        (L.NEWER, True): _ENDS,
    }
)
"""Of an ended subscription nothing is taken: all that comes is counted in X_UNKNOWN."""


class Use(enum.Enum):
    """What a field is for."""

    TAKEN = "taken"
    IGNORED = "ignored"
    """Known, and of no use here."""
    ENDS = "ends the subscription"


FIELDS: Mapping[str, Mapping[str, Use]] = MappingProxyType(
    {
        "ChangeDataEvent": {"events": Use.TAKEN, "resolved_ts": Use.TAKEN},
        "ResolvedTs": {"regions": Use.TAKEN, "ts": Use.TAKEN, "request_id": Use.TAKEN},
        "Event": {
            "region_id": Use.TAKEN,
            "index": Use.IGNORED,
            "request_id": Use.TAKEN,
            "entries": Use.TAKEN,
            "admin": Use.IGNORED,  # of TiKV 4
            "error": Use.ENDS,
            "resolved_ts": Use.TAKEN,  # of one region: a TiKV that was asked by an old client
            "long_txn": Use.IGNORED,  # never sent by a TiKV that was released
        },
        "Event.Entries": {"entries": Use.TAKEN},
        "Event.Row": {
            "start_ts": Use.TAKEN,
            "commit_ts": Use.TAKEN,
            "type": Use.TAKEN,
            "op_type": Use.TAKEN,
            "key": Use.TAKEN,
            "value": Use.TAKEN,
            "old_value": Use.TAKEN,
            "expire_ts_unix_secs": Use.IGNORED,  # of raw keys
            "txn_source": Use.TAKEN,  # bit 16: written by a physical import
            "generation": Use.TAKEN,
        },
    }
)


def _verdicts() -> np.ndarray[Any, Any]:
    out = np.zeros(L.KINDS * L.VERDICTS_OF_KIND, np.uint8)
    for (kind, keyed), rule in ROWS.items():
        out[L.VERDICTS_OF_KIND * kind + keyed] = rule.scanning
        out[L.VERDICTS_OF_KIND * kind + 2 + keyed] = rule.live
    return out


VERDICTS = _verdicts()
"""ROWS as the `match` kernel reads it. Not to be changed."""
