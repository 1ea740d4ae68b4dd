"""How TiDB prints what JSON columns hold: it has changed, and consumers get the text of the version that the cluster has."""

from __future__ import annotations

import enum
import re


class JsonStyle(enum.Enum):
    """A way of printing documents. They differ in doubles, and in two control characters."""

    GO = "go"
    """Up to 8.5 and 9.0.0-beta.1: 1.0 is `1`, exponents below 1e-6 and from 1e21 on (`1e+21`), `\\u0008` and `\\u000c`."""

    MYSQL = "mysql"
    """Newer ones: 1.0 is `1.0`, exponents below 1e-15 and from 1e15 on (`1e15`), `\\b` and `\\f`."""


_VERSION = re.compile(r"v?(\d+)\.(\d+)\.\d+(?:-(alpha|beta|rc)(?:\.(\d+))?)?")
_CHANGED = (9, 0)  # and in its betas, from the second on
_FIRST_BETA = 2


def style_of(version: str) -> JsonStyle:
    """The style of a TiDB, PD or TiKV version as these tell it: `8.5.1`, `v9.0.0-beta.2`. What is no version prints as ever."""
    found = _VERSION.match(version.strip())
    if found is None or (int(found[1]), int(found[2])) < _CHANGED:
        return JsonStyle.GO
    first_betas = (int(found[1]), int(found[2])) == _CHANGED and found[3] == "beta" and int(found[4] or 1) < _FIRST_BETA
    return JsonStyle.GO if first_betas else JsonStyle.MYSQL
