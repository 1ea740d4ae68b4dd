"""Files of claim checks: in folders and in a bucket, by TiCDC's URIs; what is said of them names no key."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.support.servers.s3 import make_bucket, objects, s3_server
from tidemill.errors import ConfigError, MalformedMessage, SinkUnavailable
from tidemill.protocols.common.claim_check import file_name, unpack
from tidemill.sinks.claim_check import ClaimCheckStorage

__all__ = ["s3_server"]


@pytest.mark.parametrize("form", ["file://{}", "file://{}/", "local://{}", "{}"])
def test_folders(tmp_path: Path, form: str) -> None:
    storage = ClaimCheckStorage(form.format(tmp_path / "checks"))
    location = storage.keep(b"key", b"value")
    assert location == f"file://{tmp_path}/checks/{file_name(b'key', b'value')}"
    assert json.loads(Path(location.removeprefix("file://")).read_bytes()) == {"key": "a2V5", "value": "dmFsdWU="}
    assert unpack(storage.fetch(location)) == (b"key", b"value")
    assert storage.keep(b"key", b"value") == location
    assert storage.keep(b"keyv", b"alue") != location
    assert len(list((tmp_path / "checks").iterdir())) == 2


def test_raw_values(tmp_path: Path) -> None:
    storage = ClaimCheckStorage(f"file://{tmp_path}", raw=True)
    assert storage.fetch(storage.keep(b"", b"value")) == b"value"


def test_a_bucket(s3_server: str) -> None:
    make_bucket(s3_server, "checks")
    storage = ClaimCheckStorage(f"s3://checks/a/b?endpoint={s3_server}&access-key=test&secret-access-key=test&region=us-east-1")
    location = storage.keep(b"key", b"value")
    assert location == f"s3://checks/a/b/{file_name(b'key', b'value')}"
    assert objects(s3_server, "checks/a/b") == {
        file_name(b"key", b"value"): b'{"key":"%s","value":"%s"}' % (base64.b64encode(b"key"), base64.b64encode(b"value"))
    }
    assert unpack(storage.fetch(location)) == (b"key", b"value")
    with pytest.raises(MalformedMessage, match="there is no claim-check file"):
        storage.fetch("s3://checks/a/b/other.json")


def test_errors_hold_no_key(s3_server: str) -> None:
    storage = ClaimCheckStorage(f"s3://nowhere/a?endpoint={s3_server}&access-key=test&secret-access-key=topsecret&region=us-east-1")
    with pytest.raises(SinkUnavailable, match=r"s3://nowhere/a: ") as caught:
        storage.keep(b"", b"")
    assert "topsecret" not in str(caught.value)
    with pytest.raises(ConfigError, match="claim-check-storage-uri ftp://host/x") as refused:
        ClaimCheckStorage("ftp://user:topsecret@host/x")
    assert "topsecret" not in str(refused.value)
    for parameter in ("account-key", "sas-token", "sig", "credentials", "secret_key"):
        with pytest.raises(ConfigError, match="claim-check-storage-uri azblob://c/p") as refused:
            ClaimCheckStorage(f"azblob://c/p?x=1&{parameter}=topsecret")
        assert "topsecret" not in str(refused.value)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkUnavailable, match="cannot be written"):
        ClaimCheckStorage(f"file://{tmp_path}/file").keep(b"", b"")
