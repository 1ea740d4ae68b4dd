"""The options of tables of a lakehouse as a sink: delta:// and iceberg://."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote

from tidemill.errors import ConfigError, redact

DELTA_ON_S3 = "delta+s3"


class LakeMode(enum.Enum):
    """What a table of the lake holds."""

    UPSERT = "upsert"  # the rows that the upstream's table has
    CHANGES = "changes"  # every change of them


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Delta tables below a folder or a bucket's prefix (its settings: `SinkUri.storage`), or the tables of an Iceberg catalog."""

    mode: LakeMode = LakeMode.UPSERT
    target_file_size: int = 128 << 20  # bytes
    compact_every: int = 32  # commits of a table
    catalog: str = ""  # of Iceberg: its name; empty: Delta
    namespace: str = ""  # of Iceberg: what the schemas' names are put below
    catalog_uri: str = field(default="", repr=False)  # may hold a password
    warehouse: str = ""


def lake_options(parts: SplitResult, values: Mapping[str, Any], text: str) -> LakeOptions:
    """Return the options of a URI with these parameters, defaults included. Raises ConfigError."""
    given = {"mode": values["mode"], "target_file_size": values["target-file-size"], "compact_every": values["compact-every"]}
    if parts.scheme != "iceberg":
        return LakeOptions(**given)
    if not parts.netloc or "@" in parts.netloc:
        raise ConfigError(f"sink URI {redact(text)}: expected iceberg://CATALOG/[NAMESPACE]")
    namespace = unquote(parts.path).strip("/").replace("/", ".")
    if not values["warehouse"]:
        raise ConfigError(f"sink URI {redact(text)}: warehouse is missing", hint="It says where data files and Tidemill's notes lie.")
    return LakeOptions(
        **given, catalog=parts.netloc, namespace=namespace, catalog_uri=values["catalog-uri"] or "", warehouse=values["warehouse"]
    )


def delta_place(parts: SplitResult, text: str) -> str:
    """Return the path of the tables: absolute for a folder, within the bucket for delta+s3://. Raises ConfigError."""
    path = unquote(parts.path)
    if parts.scheme == DELTA_ON_S3:
        if not parts.netloc or "@" in parts.netloc or ":" in parts.netloc:
            raise ConfigError(f"sink URI {redact(text)}: expected delta+s3://BUCKET/PREFIX; keys go into the parameters")
        return path.strip("/")
    if parts.netloc not in ("", "localhost") or not path.strip("/"):
        raise ConfigError(
            f"sink URI {redact(text)}: expected an absolute path: delta:///path", hint="For a bucket: delta+s3://BUCKET/PREFIX."
        )
    return path.rstrip("/")
