"""Folders and buckets: file://, s3:// and messages://, and the storage of tables of a lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from tidemill.config.lake import DELTA_ON_S3
from tidemill.config.parameters import DateSeparator, Scheme
from tidemill.config.sinks import Reading
from tidemill.errors import ConfigError, redact
from tidemill.protocols.all import PROTOCOLS
from tidemill.secret import NONE, Secret, secret_of


@dataclass(frozen=True, slots=True)
class S3Options:
    """The settings of a bucket. Empty ones come from the environment."""

    bucket: str
    region: str = ""
    endpoint: str = ""
    access_key: Secret = NONE
    secret_access_key: Secret = NONE
    session_token: Secret = NONE
    force_path_style: bool = True
    role_arn: str = ""
    external_id: Secret = NONE


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Paths and files of a storage sink, as in TiCDC."""

    date_separator: DateSeparator = DateSeparator.DAY
    partition_separator: bool = True  # a folder for each partition of a partitioned table
    file_index_digits: int = 20
    flush_interval_ms: int = 5000
    file_size: int = 64 << 20  # bytes
    use_table_id_as_path: bool = False
    output_column_id: bool = False
    s3: S3Options | None = None  # None: a local folder


def read(uri: Reading) -> dict[str, Any]:
    """Return the fields of a file:// or s3:// URI. Raises ConfigError."""
    if uri.scheme == Scheme.S3 and (uri.protocol is None or not uri.protocol.file_extension):
        takes = " and ".join(sorted((s.spellings[0] for s in PROTOCOLS.values() if s.file_extension), reverse=True))
        raise ConfigError(f"sink URI: s3:// takes protocol={takes}")
    path = _within_bucket(uri) if uri.scheme == Scheme.S3 else _folder(uri)
    return {"path": path, "storage": storage_options(uri.scheme, uri.parts, uri.values)}


def read_messages(uri: Reading) -> dict[str, Any]:
    """Return the fields of a messages:// URI. Raises ConfigError."""
    return {"path": _folder(uri)}


def _within_bucket(uri: Reading) -> str:
    if not uri.parts.netloc or "@" in uri.parts.netloc or ":" in uri.parts.netloc:
        raise ConfigError(f"sink URI {redact(uri.text)}: expected s3://BUCKET/PREFIX; keys go into the parameters")
    return unquote(uri.parts.path).strip("/")


def _folder(uri: Reading) -> str:
    path, is_file = unquote(uri.parts.path), uri.scheme == Scheme.MESSAGES
    if uri.parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise ConfigError(f"sink URI {redact(uri.text)}: expected an absolute path: {uri.scheme}:///path")
    if not path.strip("/") or (is_file and path.endswith("/")):
        raise ConfigError(f"sink URI {redact(uri.text)}: it names no {'file' if is_file else 'folder'}")
    return path.rstrip("/")


def storage_options(scheme: str, parts: SplitResult, values: Mapping[str, Any]) -> StorageOptions:
    """Return the options of a folder or bucket. Raises ConfigError."""
    s3 = S3Options(
        bucket=urlsplit(values["warehouse"]).netloc if scheme == Scheme.ICEBERG else parts.netloc,
        region=values["region"] or "",
        endpoint=values["endpoint"] or "",
        access_key=secret_of("access-key", values, "sink URI"),
        secret_access_key=secret_of("secret-access-key", values, "sink URI"),
        session_token=secret_of("session-token", values, "sink URI"),
        force_path_style=values["force-path-style"],
        role_arn=values["role-arn"] or "",
        external_id=secret_of("external-id", values, "sink URI"),
    )
    if s3.role_arn and s3.access_key:
        raise ConfigError(
            "sink URI: role-arn and access-key exclude each other", hint="The environment has the keys that may take the role."
        )
    if s3.external_id and not s3.role_arn:
        raise ConfigError("sink URI: external-id belongs to role-arn")
    return StorageOptions(
        date_separator=values["date-separator"],
        partition_separator=values["enable-partition-separator"],
        file_index_digits=values["file-index-digit"],
        flush_interval_ms=values["flush-interval"],
        file_size=values["file-size"],
        use_table_id_as_path=values["use-table-id-as-path"],
        output_column_id=values["output-column-id"],
        s3=s3 if scheme == Scheme.S3 or parts.scheme == DELTA_ON_S3 or (values["warehouse"] or "").startswith("s3://") else None,
    )
