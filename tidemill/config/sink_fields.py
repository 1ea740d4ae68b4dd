"""The fields of sink URIs of lakes and databases. Their options are in `lake.py` and `database.py`, which the table of parameters needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemill.config.database import TIDB_WORKERS, mysql_options
from tidemill.config.lake import LakeMode, delta_place, lake_options
from tidemill.config.parameters import Scheme
from tidemill.config.sinks import Reading
from tidemill.config.storage import storage_options


def read_lake(uri: Reading) -> dict[str, Any]:
    """Return the fields of a delta:// or iceberg:// URI. Raises ConfigError."""
    lake = lake_options(uri.parts, uri.values, uri.text)
    every_change = lake.mode is LakeMode.CHANGES
    return {
        "path": delta_place(uri.parts, uri.text) if uri.scheme == Scheme.DELTA else "",
        "encoding": replace(uri.encoding, every_image=every_change, output_raw_change_event=every_change),
        "storage": storage_options(uri.scheme, uri.parts, uri.values),
        "lake": lake,
    }


def read_database(uri: Reading) -> dict[str, Any]:
    """Return the fields of a mysql:// or tidb:// URI. Raises ConfigError."""
    values = dict(uri.values)
    if "worker-count" not in uri.given and uri.parts.scheme.startswith("tidb"):
        values["worker-count"] = TIDB_WORKERS
    return {"mysql": mysql_options(uri.parts, values, uri.text)}
