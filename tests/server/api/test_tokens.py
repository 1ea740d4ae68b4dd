"""Tokens: who may change something."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService
from tidemill.errors import ConfigError
from tidemill.server.api.tokens import Tokens, Unauthorized

ONE, TWO = "0123456789abcdef-one", "0123456789abcdef-two"


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    path = tmp_path / "tokens"
    path.write_text(f"# who may change something\n{ONE}\n\nops {TWO}\n")
    path.chmod(0o600)
    return Tokens(path)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (f"Bearer {ONE}", "a token"),
        (f"bearer  {TWO}", "ops"),
        (basic("ops", TWO), "ops"),
        (basic("anybody", ONE), "anybody"),
    ],
)
def test_known_tokens(tokens: Tokens, header: str, name: str) -> None:
    assert tokens.check(header) == name


@pytest.mark.parametrize(
    "header",
    [
        *(
            None,
            "",
            "Bearer",
            "Bearer ",
            f"Bearer {ONE}x",
            f"Digest {ONE}",
            ONE,
            "Basic",
            "Basic %%%",
            "Basic " + base64.b64encode(b"\xff").decode(),
        ),
        basic("other", TWO),
        basic("ops", "wrong"),
        "Basic " + base64.b64encode(b"nocolon").decode(),
    ],
)
def test_others(tokens: Tokens, header: str | None) -> None:
    with pytest.raises(Unauthorized) as refused:
        tokens.check(header)
    assert ONE not in str(refused.value)


def test_a_file_that_changes_is_read_again(tokens: Tokens) -> None:
    tokens.path.write_text("a new token that is long\n".replace(" ", "-") + "\n")
    assert tokens.check("Bearer a-new-token-that-is-long") == "a token"
    with pytest.raises(Unauthorized):
        tokens.check(f"Bearer {ONE}")
    tokens.path.write_text("short\n")
    assert tokens.check("Bearer a-new-token-that-is-long") == "a token"
    os.unlink(tokens.path)  # noqa: PTH108
    assert tokens.check("Bearer a-new-token-that-is-long") == "a token"


@pytest.mark.parametrize(
    ("text", "why"), [("", "has no token"), ("short", "at least 16"), ("a b c", "TOKEN or NAME TOKEN"), ("# x", "has no token")]
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        Tokens(path)
    with pytest.raises(ConfigError, match="No such file"):
        Tokens(tmp_path / "none")


def test_a_file_that_others_may_read_is_warned_of(tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    tokens.path.chmod(0o644)
    Tokens(tokens.path)
    assert "chmod 600" in caplog.text


def test_reading_needs_no_token_and_changing_does(tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidemill")
    api = Api(FakeService(), tokens)
    for path in ("/status", "/api/v2/changefeeds", "/metrics", "/api/v2/health"):
        assert api.get(path).status_code == 200
    assert api.post("/api/v2/tso").status_code == 200
    changing = [
        ("POST", "/api/v2/changefeeds"), ("PUT", "/api/v2/changefeeds/a"), ("DELETE", "/api/v2/changefeeds/a"),
        ("POST", "/api/v2/changefeeds/a/pause"), ("POST", "/api/v2/changefeeds/a/resume"), ("POST", "/api/v2/changefeeds/a/move_table"),
        ("POST", "/api/v2/log"), ("POST", "/api/v2/owner/resign"), ("GET", "/api/v2/unsafe/metadata"), ("PUT", "/api/v1/captures/drain"),
        ("DELETE", "/api/v2/unsafe/service_gc_safepoint"), ("POST", "/api/v2/captures/x/drain"), ("POST", "/debug/failpoints"),
    ]  # fmt: skip
    for method, path in changing:
        answer = api(method, path)
        assert (answer.status_code, answer.json()["error_code"]) == (401, "CDC:ErrUnauthorized"), path
        assert answer.headers["www-authenticate"] == "Bearer"
    body = {"sink_uri": "blackhole://", "changefeed_id": "a"}
    assert api.post("/api/v2/changefeeds", json=body, headers={"authorization": f"Bearer {TWO}"}).status_code == 200
    assert "user ops" in caplog.text
    assert TWO not in caplog.text
