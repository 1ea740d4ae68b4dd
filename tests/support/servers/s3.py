"""An S3 server for tests: moto's, in this process, on a free port."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow.fs
import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Its endpoint. Import it into a test module (or conftest) to use it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def make_bucket(endpoint: str, name: str) -> None:
    """A new bucket."""
    filesystem(endpoint, allow_bucket_creation=True).create_dir(name)


def filesystem(endpoint: str, **options: Any) -> pyarrow.fs.S3FileSystem:
    """The server as pyarrow sees it."""
    host = endpoint.partition("://")[2]
    return pyarrow.fs.S3FileSystem(
        access_key="test", secret_key="test", endpoint_override=host, scheme="http", region="us-east-1", **options
    )


def objects(endpoint: str, folder: str) -> dict[str, bytes]:
    """Content of each object below BUCKET/PREFIX, by its name there."""
    fs = filesystem(endpoint)
    found = {}
    for info in fs.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True)):
        if info.is_file:
            with fs.open_input_stream(info.path) as stream:
                found[info.path.removeprefix(folder + "/")] = bytes(stream.read())
    return found
