"""Tokens: who may change something."""

from __future__ import annotations

import base64
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService
from tidemill.errors import ConfigError
from tidemill.process import threads
from tidemill.secret import Secret, Way
from tidemill.server.api.tokens import Caller, Role, Tokens, Unauthorized

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
    assert tokens.check(header) == Caller(name, Role.ADMIN)


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
    assert tokens.check("Bearer a-new-token-that-is-long").name == "a token"
    with pytest.raises(Unauthorized):
        tokens.check(f"Bearer {ONE}")
    tokens.path.write_text("short\n")
    assert tokens.check("Bearer a-new-token-that-is-long").name == "a token"
    os.unlink(tokens.path)  # noqa: PTH108
    assert tokens.check("Bearer a-new-token-that-is-long").name == "a token"


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
    assert "audit: ops (admin) from 127.0.0.1: POST /api/v2/changefeeds: 200: state: none -> normal" in caplog.text
    assert TWO not in caplog.text


def test_a_role_may_do_what_those_below_it_may(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("".join(f"{role} 0123456789abcdef-{role} {role}\n" for role in ("read", "operate", "admin")))
    path.chmod(0o600)
    api = Api(FakeService(), Tokens(path))
    body = {"sink_uri": "blackhole://", "changefeed_id": "a"}
    asked = (
        ("GET", "/debug/info", Role.READ),
        ("GET", "/api/page/log", Role.READ),
        ("GET", "/api/v2/unsafe/metadata", Role.READ),
        ("POST", "/api/v2/changefeeds/a/pause", Role.OPERATE),
        ("POST", "/api/v2/changefeeds/a/resume", Role.OPERATE),
        ("POST", "/api/v2/verify_table", Role.OPERATE),
        ("POST", "/api/v2/get_all_tables", Role.OPERATE),
        ("POST", "/api/page/check", Role.OPERATE),
        ("POST", "/api/v2/changefeeds", Role.ADMIN),
        ("PUT", "/api/v2/changefeeds/a", Role.ADMIN),
        ("DELETE", "/api/v2/changefeeds/a", Role.ADMIN),
        ("POST", "/api/v2/owner/resign", Role.ADMIN),
        ("POST", "/api/v2/unsafe/resolve_lock", Role.ADMIN),
        ("POST", "/api/v2/log", Role.ADMIN),
        ("PUT", "/api/v1/captures/drain", Role.ADMIN),
    )
    for method, where, needed in asked:
        assert api(method, where).status_code == 401, where
        for role in Role:
            headers = {"authorization": f"Bearer 0123456789abcdef-{role.name.lower()}"}
            status = api(method, where, json=body, headers=headers).status_code
            assert (status == 403) == (role < needed), (where, role, status)


def test_names_of_certificates_have_roles(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("cn=grafana read\ncn=ops operate\n")
    path.chmod(0o600)
    tokens = Tokens(path)
    assert tokens.names_certificates
    assert tokens.check(None, ["grafana"]) == Caller("cn=grafana", Role.READ)
    assert tokens.check("", ["grafana", "ops"]).role is Role.OPERATE
    with pytest.raises(Unauthorized):
        tokens.check(None, ["nobody"])
    with pytest.raises(Unauthorized, match="not known"):
        tokens.check("Bearer 0123456789abcdef-wrong", ["ops"])


@pytest.mark.parametrize("line", ["name 0123456789abcdef-x boss", "cn=ops boss", "name 0123456789abcdef-x read more", "name short read"])
def test_a_line_with_a_wrong_role_shows_no_token(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError, match="line 1") as caught:
        Tokens(path)
    assert "0123456789abcdef" not in str(caught.value)


def test_each_change_has_a_line_that_says_who_what_and_from_where(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    path.write_text("eve 0123456789abcdef-read read\nops 0123456789abcdef-admin admin\n")
    path.chmod(0o600)
    api = Api(FakeService(), Tokens(path))
    secret = "kafka://h:9092/t?protocol=canal-json&sasl-user=u&sasl-password=geheim"
    headers = {"authorization": "Bearer 0123456789abcdef-admin"}
    caplog.set_level("INFO", "tidemill.audit")
    logging.getLogger("tidemill").setLevel("ERROR")
    api.post("/api/v2/changefeeds", json={"sink_uri": secret, "changefeed_id": "a"}, headers=headers)
    api.post("/api/v2/changefeeds/a/pause", headers=headers)
    api("DELETE", "/api/v2/changefeeds/a", headers={"authorization": "Bearer 0123456789abcdef-read"})
    api("DELETE", "/api/v2/changefeeds/a")
    api("DELETE", "/api/v2/changefeeds/a", headers=headers)
    lines = [one.getMessage() for one in caplog.records if one.name == "tidemill.audit"]
    wanted = (
        "audit: ops (admin) from 127.0.0.1: POST /api/v2/changefeeds: 200: state: none -> normal; sink_uri: none -> kafka://h:9092/t?",
        "audit: ops (admin) from 127.0.0.1: POST /api/v2/changefeeds/a/pause: 200: state: normal -> stopped",
        "audit: eve (read) from 127.0.0.1: DELETE /api/v2/changefeeds/a: 403: eve has the role read, and this needs admin",
        "audit: anybody from 127.0.0.1: DELETE /api/v2/changefeeds/a: 401: this request needs a token",
        "audit: ops (admin) from 127.0.0.1: DELETE /api/v2/changefeeds/a: 200: state: stopped -> none",
    )
    assert len(lines) == len(wanted), lines
    for line, beginning in zip(lines, wanted, strict=True):
        assert line.startswith(beginning)
    assert "geheim" not in caplog.text
    logging.getLogger("tidemill").setLevel("NOTSET")


def test_tokens_come_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKENS", f"ops {TWO} read\n")
    tokens = Tokens(reference=Secret("auth", way=Way.ENV, place="THE_TOKENS"))
    assert tokens.check(f"Bearer {TWO}") == Caller("ops", Role.READ)
    with pytest.raises(ConfigError, match="auth-env NONE: the environment has no NONE"):
        Tokens(reference=Secret("auth", way=Way.ENV, place="NONE"))


def test_a_command_that_prints_tokens_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread, so the loop goes on; while it has not answered, or fails, the old tokens count."""
    (tmp_path / "t").write_text(f"{ONE}\n")
    tokens = Tokens(reference=Secret("auth", way=Way.COMMAND, place=f"cat {tmp_path}/t"))
    begun: list[threading.Event] = []
    really = threads.begin

    def begin(work: Callable[[], None]) -> threading.Event:
        begun.append(really(work))
        return begun[-1]

    monkeypatch.setattr(threads, "begin", begin)
    assert tokens.check(f"Bearer {ONE}").role is Role.ADMIN
    assert begun == []
    for text, before, after in ((f"{TWO}\n", ONE, TWO), ("short\n", TWO, TWO)):
        (tmp_path / "t").write_text(text)
        tokens._due = 0.0
        assert tokens.check(f"Bearer {before}").role is Role.ADMIN
        assert begun[-1].wait(30)
        assert tokens.check(f"Bearer {after}").role is Role.ADMIN
    assert len(begun) == 2
    with pytest.raises(Unauthorized):
        tokens.check(f"Bearer {ONE}")
