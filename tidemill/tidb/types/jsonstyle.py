"""How TiDB prints JSON columns. This has changed over its versions, and consumers get the text of the cluster's version.

9.0.0-beta.1 (December 2024) prints in the old way: TiCDC of that version was run, and its bytes are the golden data. TiDB of April 2025
prints in the new way, so 9.0.0-beta.2 is the first new version here. The release notes of 8.5 patches do not name the change. Other
builds of 9.0 (`9.0.0-alpha`) exist of both kinds; they count as new, because a running one is most likely recent.
"""

from __future__ import annotations

import enum
import re


class JsonStyle(enum.Enum):
    """A way of printing documents. They differ in doubles, and in two control characters."""

    GO = "go"
    """Up to 8.5 and 9.0.0-beta.1: 1.0 is `1`, exponents below 1e-6 and from 1e21 on (`1e+21`), `\\u0008` and `\\u000c`."""

    MYSQL = "mysql"
    """Newer ones: 1.0 is `1.0`, exponents below 1e-15 and from 1e15 on (`1e15`), `\\b` and `\\f`."""


_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.\d+(?:-(alpha|beta|rc)(?:\.(\d{1,9}))?)?")
_CHANGED = (9, 0)
_CHANGED_BETA = 2


def style_of(version: str) -> JsonStyle:
    """Return the style of a TiDB, PD or TiKV version such as `8.5.1` or `v9.0.0-beta.2`. Any other text gets the old style."""
    found = _VERSION.match(version.strip())
    if found is None or (int(found[1]), int(found[2])) < _CHANGED:
        return JsonStyle.GO
    first_betas = (int(found[1]), int(found[2])) == _CHANGED and found[3] == "beta" and int(found[4] or 1) < _CHANGED_BETA
    return JsonStyle.GO if first_betas else JsonStyle.MYSQL
