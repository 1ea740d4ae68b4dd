"""Optional dependencies: an install of Tidemill has those of the extras that were asked for. What needs another one says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tidemill.errors import ConfigError

EXTRAS = {
    "kafka": ("confluent_kafka", "httpx"),
    "mysql": ("pymysql",),
    "s3": ("botocore",),
    "canal": ("kazoo",),
    "lake": ("deltalake", "pyiceberg", "sqlalchemy"),
    "binlog": ("etcd3aio", "plyvel", "cryptography", "httpx"),
    "server": ("fastapi", "starlette", "uvicorn", "h11", "httpx", "etcd3aio"),
    "playground": ("greenlet", "etcd3aio"),
    "views": ("duckdb",),
    "otel": ("opentelemetry",),
}
"""The extras of pyproject.toml, and the modules that each brings."""


class ExtraMissing(ConfigError, ImportError):
    """Something was asked for whose optional dependency is not installed."""


def demand(name: str) -> None:
    """Check that an extra is installed. Raises ExtraMissing."""
    for module in EXTRAS[name]:
        if find_spec(module) is None:
            raise _missing(module, name)


def _missing(module: str, name: str) -> ExtraMissing:
    return ExtraMissing(
        f"this needs the Python package {module}, which is not installed",
        hint=f"Install it with the extra that has it: pip install 'tidemill[{name}]'.",
    )


@contextmanager
def extra(name: str) -> Iterator[None]:
    """`with extra("kafka"):` around the imports of what only this extra brings. Raises ExtraMissing."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS[name]:
            raise
        raise _missing(module, name) from None
