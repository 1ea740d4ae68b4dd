"""The file of `tidemill server --config`: TiCDC's keys."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from tidemill.cli.changefeeds.server_file import REFUSED, SECURITY, WITHOUT_MEANING, defaults, flags_of
from tidemill.cli.main import build
from tidemill.errors import ConfigError

PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8").partition("## The server's file\n")[2]


def command() -> Any:
    whole: Any = typer.main.get_command(build(["server"]))
    return whole.commands["server"]


def read(folder: Path, text: str) -> dict[str, object]:
    path = folder / "server.toml"
    path.write_text(text)
    return defaults(path, flags_of(command()))


def test_security_has_ticdcs_keys(tmp_path: Path) -> None:
    text = "[security]\nca-path = 'ca.pem'\ncert-path = 'c.pem'\nkey-path = 'k.pem'\ncert-allowed-cn = ['a', 'b']\nmtls = true\n"
    assert read(tmp_path, text) == {"ca": "ca.pem", "cert": "c.pem", "key": "k.pem", "cert_allowed_cn": "a,b", "mtls": True}
    assert read(tmp_path, "[security]\nmtls = false\nca-path = ''\ncert-allowed-cn = []\n") == {"mtls": False}
    with pytest.raises(ConfigError, match=r"security\.mtls = 'yes': expected true or false"):
        read(tmp_path, "[security]\nmtls = 'yes'\n")


def test_keys_are_the_flags_as_they_are_written(tmp_path: Path) -> None:
    text = "log = 's3://b/log'\npd = ['a:1', 'b:1']\nsink-retry = '9m'\ngc-ttl = 60\nstandby = false\nsplit-table = ['a.b=2', 'a.c=3']\n"
    wanted = {"log_place": "s3://b/log", "pd": "a:1,b:1", "retry": "9m", "gc_ttl": "60", "standby": False}
    assert read(tmp_path, text) == wanted | {"split_tables": ["a.b=2", "a.c=3"]}
    assert read(tmp_path, "spark-conf = 'x=y'\nregion-stuck-after = '1m'\n") == {"spark_conf": ["x=y"], "stuck_after": "1m"}


def test_the_command_takes_what_the_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as its own checks, which a wrong TTL stops."""
    monkeypatch.delenv("TIDEMILL_LOG", raising=False)
    file = tmp_path / "server.toml"
    file.write_text(f"log = '{tmp_path}/log'\npd = '127.0.0.1:1'\nspark-conf = ['a=b', 'c=d']\nlog-file = '{tmp_path}/out'\ngc-ttl = 0\n")
    with pytest.raises(ConfigError, match="--gc-ttl 0 is not a number of seconds"):
        command().main(["--config", str(file)], standalone_mode=False)
    with pytest.raises(ConfigError, match="--gc-ttl -5"):
        command().main(["--config", str(file), "--gc-ttl", "-5"], standalone_mode=False)


@pytest.mark.parametrize(
    ("given", "said"), [((), "--pd and --log are missing"), (("--pd", "h:1"), "--log is missing"), (("--log", "l"), "--pd is missing")]
)
def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], said: str) -> None:
    monkeypatch.delenv("TIDEMILL_LOG", raising=False)
    with pytest.raises(ConfigError, match=rf"^{said}\n") as refused:
        command().main(list(given), standalone_mode=False)
    assert "--pd" in refused.value.hint
    assert "--log" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gc-tl = 5", "unknown key gc-tl"),
        ("config = 'x'", "unknown key config"),
        ("log-place = 'x'", "unknown key log-place"),
        ("security = 5", "expected a table"),
        ("[security]\nca = 'x'", r"unknown key security\.ca"),
        ("addr = true", "expected a text or a number"),
        ("[encryption]\nenable-encryption = true", "encryption cannot be followed"),
        ("[security]\nclient-user-required = true", r"security\.client-user-required cannot be followed"),
        ("[security]\nclient-allowed-user = ['root']", r"security\.client-allowed-user cannot be followed"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(tmp_path, text)


def test_what_has_no_meaning_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    text = "newarch = true\n[log]\nerror-output = 'x'\n[encryption]\nenable-encryption = false\n[security]\nredact-info-log = true\n"
    assert read(tmp_path, text) == {}
    told = [re.findall(r": (\S+) has no meaning", one.getMessage())[0] for one in caplog.records]
    assert told == ["newarch", "log", "encryption", "security.redact-info-log"]


def rows(text: str) -> dict[str, str]:
    """The keys of the first column, and what the second has."""
    found = re.findall(r"^\| (`[^|]*`) \| ([^|]+) \|", text, re.MULTILINE)
    return {key: value for keys, value in found for key in re.findall(r"`([^`]+)`", keys)}


def test_the_page_has_every_key_with_its_default() -> None:
    keys, _, more = PAGE.partition("| key of `[security]` |")
    of_security, _, without = more.partition("Without meaning, with a warning")
    flags = flags_of(command())
    assert rows(keys).keys() == flags.keys()
    given = {one.name: one.default for one in command().params}
    for key, told in rows(keys).items():
        default = given[flags[key].parameter]
        if default is not None and not flags[key].repeated:
            text = str(default).lower() if isinstance(default, bool) else f"{default:g}" if isinstance(default, float) else str(default)
            assert told == f"`{text}`", key
    others = {one.removeprefix("security.") for one in (*WITHOUT_MEANING, *REFUSED) if one.startswith("security.")}
    assert rows(of_security).keys() == SECURITY.keys() | others
    named = {one.strip("[]") for one in re.findall(r"`([^`=.]+)`", without)}
    assert named == {one for one in (*WITHOUT_MEANING, *REFUSED) if not one.startswith("security.")}


KEYS = (Path(__file__).parents[2] / "golden/peers/ticdc_server_keys.tsv").read_text(encoding="utf-8").split()[1:]
VALUES = {"gc-ttl": "60", "capture-session-ttl": "10", "security.mtls": "true", "encryption.enable-encryption": "true", "tz": "'UTC'"}


@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_ticdc_is_taken_warned_of_or_refused_with_a_reason(key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = f"{key} = {VALUES.get(key, chr(39) + 'x' + chr(39))}\n"
    if key in ("encryption.enable-encryption", "security.client-user-required", "security.client-allowed-user"):
        with pytest.raises(ConfigError, match=r"encrypts nothing|knows no users"):
            read(tmp_path, text)
    else:
        assert bool(read(tmp_path, text)) == ("has no meaning for Tidemill" not in caplog.text)
