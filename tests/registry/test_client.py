"""The client against a registry that is away, slow, or none; and what it says to it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.servers.registries import Fault, Front, MemoryRegistry, Reply
from tidemill.config.registry_address import parse_address
from tidemill.errors import ConfigError, RegistryError, RegistryUnavailable, SchemaIncompatible
from tidemill.registry import answers
from tidemill.registry.answers import Forbidden, NotThere
from tidemill.registry.client import RegistryClient

TEXT = '{"type":"record","name":"t","namespace":"default.a","fields":[{"name":"\\u003cé","type":"int"}]}'
PAUSES = (0.01, 0.02)


@pytest.fixture
def front() -> Iterator[Front]:
    with Front(MemoryRegistry()) as front:
        yield front


def client(front: Front, timeout: str = "10s", user: str = "") -> RegistryClient:
    return RegistryClient(parse_address(f"http://{user}{front.address}?timeout={timeout}"), pauses=PAUSES)


def refusal(status: int, code: int, message: str) -> Fault:
    return Fault(Reply(status, json.dumps({"error_code": code, "message": message}).encode()))


def test_a_schema_is_registered_under_its_subject_as_it_is() -> None:
    registry = MemoryRegistry()
    with Front(registry) as front, client(front) as one:
        assert one.register("tidb_a/b c-value", TEXT) == 1
        assert registry.subjects == {"tidb_a/b c-value": [TEXT]}
        assert front.requests == [("POST", "/subjects/tidb_a%2Fb%20c-value/versions")]
        assert front.headers[0]["Content-Type"] == "application/vnd.schemaregistry.v1+json"
        assert one.schema(1) == TEXT
        assert one.subjects() == {"tidb_a/b c-value"}
        with pytest.raises(NotThere):
            one.schema(2)
        assert one.calls == 4


def test_a_path_in_the_address_is_kept() -> None:
    with Front(MemoryRegistry(), path="/apis/ccompat/v7") as front, client(front) as one:
        assert one.register("a-value", TEXT) == 1
        assert front.registered == ["a-value"]


def test_user_and_password_are_sent_decoded(front: Front) -> None:
    with Front(MemoryRegistry(), user="us", password="p@ss/w:rd é") as locked:
        with client(locked, user="us:p%40ss%2Fw%3Ard%20%C3%A9@") as one:
            assert one.register("a", TEXT) == 1
        with client(locked, user="us:SECRET@") as one, pytest.raises(RegistryError, match="answers 401: Unauthorized") as caught:
            one.register("a", TEXT)
    assert not caught.value.retryable
    assert "SECRET" not in str(caught.value)
    with client(front) as one:
        one.subjects()
    assert "Authorization" not in front.headers[-1]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(),
        Fault(Reply(503, b"<html>no</html>")),
        refusal(500, 50001, "Error in the backend data store"),
        refusal(429, 42901, "Too many requests"),
    ],
)
def test_a_registry_that_is_away_for_a_moment_is_asked_again(front: Front, fault: Fault) -> None:
    front.faults = [fault, fault]
    with client(front) as one:
        assert one.register("a", TEXT) == 1
    assert len(front.requests) == 3


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault(), "disconnected"),
        (Fault(Reply(502, b"<html>SECRET</html>")), "answers 502"),
        (refusal(500, 50001, "disk full"), "500: disk full"),
        (Fault(hang=True), "did not answer within 0.1 s"),
        (Fault(dribble=True), "did not answer within 0.1 s"),
    ],
)
def test_a_registry_that_stays_away_is_for_the_batch_to_try_again(front: Front, fault: Fault, told: str) -> None:
    front.fault = fault
    with client(front, timeout="100ms") as one, pytest.raises(RegistryUnavailable, match=told) as caught:
        one.register("tidb_a_b-value", TEXT)
    assert caught.value.retryable
    assert "tidb_a_b-value" in caught.value.message
    assert front.url in caught.value.message
    assert "SECRET" not in str(caught.value)
    assert len(front.requests) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>SECRET login</html>",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"id": "1"}',
        b'{"id": -1}',
        b'{"id": true}',
        b'{"id": 4294967296}',
        b'{"id": 1',
        b"[" * 100_000,
    ],
)
def test_an_answer_that_is_none_is_told_as_such(front: Front, body: bytes) -> None:
    front.fault = Fault(Reply(200, body))
    with client(front) as one, pytest.raises(RegistryUnavailable, match="is not that of a schema registry") as caught:
        one.register("a", TEXT)
    assert "SECRET" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("ask", [lambda c: c.subjects(), lambda c: c.schema(1), lambda c: c.latest("a"), lambda c: c.check("a", TEXT)])
def test_other_answers_are_looked_at_too(front: Front, ask: Callable[[RegistryClient], object]) -> None:
    front.fault = Fault(Reply(200, b'{"subjects": 1, "schema": 5, "is_compatible": "yes"}'))
    with client(front) as one, pytest.raises(RegistryUnavailable, match="is not that of a schema registry"):
        ask(one)


def test_an_answer_that_would_be_expanded_is_refused(front: Front) -> None:
    """Compressed twice, a kilobyte stands for gigabytes."""
    front.fault = Fault(Reply(200, gzip.compress(gzip.compress(bytes(1 << 20))), "gzip, gzip"))
    with client(front) as one, pytest.raises(RegistryUnavailable, match=r"it is encoded \(gzip, gzip\)"):
        one.subjects()
    assert front.headers[-1]["Accept-Encoding"] == "identity"


def test_an_endless_answer_ends(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST_ANSWER", 1000)
    front.fault = Fault(Reply(200, b'"' + b"x" * 5000 + b'"'))
    with client(front) as one, pytest.raises(RegistryUnavailable, match="longer than 1000 bytes"):
        one.register("a", TEXT)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (refusal(409, 409, "Schema being registered is incompatible"), SchemaIncompatible),
        (refusal(409, 40901, "Schema being registered is incompatible"), SchemaIncompatible),
        (refusal(422, 42201, "Input schema is an invalid Avro schema"), RegistryError),
        (refusal(403, 40301, "User is denied operation Write"), Forbidden),
        (refusal(404, 404, "HTTP 404 Not Found"), RegistryError),
        (refusal(400, 400, "what?"), RegistryError),
    ],
)
def test_a_refusal_is_final_and_tells_the_registrys_answer(front: Front, fault: Fault, kind: type[Exception]) -> None:
    front.fault = fault
    with client(front) as one, pytest.raises(RegistryError) as caught:
        one.register("a-value", TEXT)
    assert type(caught.value) is kind
    assert not caught.value.retryable
    assert fault.reply is not None
    assert json.loads(fault.reply.body)["message"] in caught.value.message
    assert len(front.requests) == 1


def test_what_a_registry_says_is_shown_short_and_without_passwords(front: Front) -> None:
    front.fault = refusal(422, 1, "see http://u:SECRET@h/ " + "x" * 5000)
    with client(front) as one, pytest.raises(RegistryError) as caught:
        one.register("a-value", TEXT)
    assert "SECRET" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_redirection_is_not_followed(front: Front) -> None:
    front.fault = Fault(Reply(307, b""))
    with client(front) as one, pytest.raises(RegistryUnavailable, match="307"):
        one.register("a", TEXT)


def test_a_check_answers_whether_and_why(front: Front) -> None:
    with client(front) as one:
        front.fault = Fault(Reply(200, b'{"is_compatible": false, "messages": ["field c", "type d"]}'))
        assert one.check("a-value", TEXT) == (False, "field c; type d")
        front.fault = Fault(Reply(200, b'{"is_compatible": true}'))
        assert one.check("a-value", TEXT) == (True, "")
        front.fault = refusal(404, 40401, "Subject 'a-value' not found.")
        assert one.check("a-value", TEXT) is None
        front.fault = Fault()
        with pytest.raises(RegistryUnavailable):
            one.check("a-value", TEXT)
    assert len(front.requests) == 4  # none again: a warning is not worth waiting for


def test_a_stop_ends_the_pauses(front: Front) -> None:
    front.fault = Fault()
    stop = threading.Event()
    stop.set()
    one = RegistryClient(parse_address(front.url), stop, pauses=(3600.0,))
    with one, pytest.raises(RegistryUnavailable):
        one.register("a", TEXT)
    assert len(front.requests) == 1


def test_nobody_at_the_address() -> None:
    with Front(MemoryRegistry()) as gone:
        address = parse_address(gone.url)
    with RegistryClient(address, pauses=()) as one, pytest.raises(RegistryUnavailable, match="refused"):
        one.subjects()


@pytest.mark.parametrize("parameters", ["ca={}/none.pem", "ca={}/broken.pem", "cert={}/broken.pem&key={}/broken.pem"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, parameters: str) -> None:
    (tmp_path / "broken.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"(none|broken)\.pem cannot be used"):
        RegistryClient(parse_address("https://u:p@h?" + parameters.format(tmp_path, tmp_path)))
