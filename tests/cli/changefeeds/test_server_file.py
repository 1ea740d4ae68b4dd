"""The file of `tidemill server --config`: TiCDC's keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.cli.changefeeds.server_file import defaults
from tidemill.errors import ConfigError

FLAGS = {"addr", "gc_ttl", "ca", "cert", "key", "cert_allowed_cn", "mtls"}


def read(folder: Path, text: str) -> dict[str, object]:
    path = folder / "server.toml"
    path.write_text(text)
    return defaults(path, FLAGS)


def test_security_has_ticdcs_keys(tmp_path: Path) -> None:
    text = "[security]\nca-path = 'ca.pem'\ncert-path = 'c.pem'\nkey-path = 'k.pem'\ncert-allowed-cn = ['a', 'b']\nmtls = true\n"
    assert read(tmp_path, text) == {"ca": "ca.pem", "cert": "c.pem", "key": "k.pem", "cert_allowed_cn": "a,b", "mtls": True}
    assert read(tmp_path, "[security]\nmtls = false\n") == {"mtls": False}
    with pytest.raises(ConfigError, match=r"security\.mtls = 'yes': expected true or false"):
        read(tmp_path, "[security]\nmtls = 'yes'\n")
