"""Errors have TiCDC's codes and statuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server.apis import Api
from tidemill import errors as e
from tidemill.server import errors as s
from tidemill.server.api.errors import _OURS, BAD_REQUEST, INTERNAL, failure_of

CODES = set((Path(__file__).parents[2] / "golden" / "peers" / "ticdc_error_codes.txt").read_text(encoding="utf-8").split())


def test_all_codes_are_ticdcs() -> None:
    own = {
        kind.code
        for kind in vars(s).values()
        if isinstance(kind, type) and issubclass(kind, e.TidemillError) and kind is not e.TidemillError
    }
    assert sorted({*_OURS.values(), *BAD_REQUEST, INTERNAL, *own} - CODES) == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (e.ConfigError("x"), 400, "CDC:ErrInvalidReplicaConfig"),
        (e.SinkUnavailable("x"), 400, "CDC:ErrSinkURIInvalid"),
        (e.TopicError("x"), 400, "CDC:ErrSinkURIInvalid"),
        (e.StartTsOutOfLog("x"), 400, "CDC:ErrStartTsBeforeGC"),
        (e.UpstreamUnavailable("x"), 500, "CDC:ErrPDEtcdAPIError"),
        (e.LogUnavailable("x"), 500, "CDC:ErrInternalServerError"),
        (s.Unhealthy("x"), 500, "CDC:ErrClusterIsUnhealthy"),
        (s.PdUnavailable("x"), 500, "CDC:ErrAPIGetPDClientFailed"),
        (s.CaptureNotExists("x"), 400, "CDC:ErrCaptureNotExist"),
    ],
)
def test_statuses(api: Api, error: e.TidemillError, status: int, code: str) -> None:
    api.service.fails = error
    answer = api.get("/api/v2/health")
    assert (answer.status_code, answer.json()) == (status, {"error_msg": f"[{code}]x", "error_code": code})


def test_the_hint_stands_behind_the_message_and_secrets_are_hidden() -> None:
    failure = failure_of(s.InvalidSinkUri("mysql://u:geheim@h:1/ does not answer", hint="Is it up?"))
    assert failure.body()["error_msg"] == "[CDC:ErrSinkURIInvalid]mysql://u:xxxxx@h:1/ does not answer. Is it up?"


def test_errors_of_the_system_and_faults_of_our_own(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.service.fails = OSError(28, "No space left on device")
    answer = api.get("/api/v2/health")
    assert answer.status_code == 500
    assert "No space left" in answer.json()["error_msg"]
    api.service.fails = ZeroDivisionError("with a secret=abcdef")
    answer = api.get("/api/v2/health")
    assert answer.status_code == 500
    assert answer.json()["error_code"] == INTERNAL
    assert "abcdef" not in answer.text
