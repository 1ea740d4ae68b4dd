"""The API against its own document: requests that schemathesis makes of it, right and wrong ones, sent to a server without tokens, and to
one with tokens by nobody, by a stranger and by each role.

`make fuzz-api SEEDS=…` makes as many rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import AcceptedNegativeData, FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.server.apis import BASE, Api
from tests.support.server.fake_service import CAPTURE, FakeService
from tests.support.simulate.trials import seeds
from tidemill.server.api.requests import role_of
from tidemill.server.api.tokens import Role, Tokens

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance, negative_data_rejection]
FUZZED = settings(max_examples=2, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
ROLES = {role: {"authorization": f"Bearer 0123456789abcdef-{role.name.lower()}"} for role in Role}
STRANGERS: tuple[Mapping[str, str], ...] = ({}, {"authorization": "Bearer 0123456789abcdef"})
ANY_ROLE = st.sampled_from(list(Role))
THERE_ARE = {"changefeed_id": "test", "capture_id": CAPTURE}


class Server:
    """It has a changefeed `test` that has failed, before each request: it can be changed, resumed and removed."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self.api = Api(FakeService(), tokens)
        made = self.api.post("/api/v2/changefeeds", json={"changefeed_id": "test", "sink_uri": "blackhole://"}, headers=ROLES[Role.ADMIN])
        assert made.status_code == 200
        self.api.service.fail("test")
        self._feeds, self._secrets = dict(self.api.service.feeds), dict(self.api.service.secrets)

    def __call__(self, request: requests.PreparedRequest, headers: Mapping[str, str]) -> httpx.Response:
        service = self.api.service
        service.forget()
        service.feeds.update(self._feeds)
        service.secrets.update(self._secrets)
        given = {name: value for name, value in request.headers.items() if name.lower() != "authorization"}
        return self.api(str(request.method), str(request.url), content=request.body, headers={**given, **headers})

    def untouched(self) -> bool:
        """Whether the last request changed nothing and asked for nothing."""
        return (self.api.service.feeds, self.api.service.calls) == (self._feeds, [])

    def role(self, case: Case[Any]) -> Role | None:
        """The role that a case's route declares."""
        of_path = (one for one in self.api.app.state.routes if isinstance(one, APIRoute) and one.path_format == case.operation.path)
        return next(role_of(route) for route in of_path if case.operation.method.upper() in (route.methods or ()))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, Server]:
    """One without tokens, and one with."""
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.touch(0o600)
    path.write_text("".join(f"{role.name} {headers['authorization'].split()[1]} {role.name.lower()}\n" for role, headers in ROLES.items()))
    return Server(), Server(Tokens(path))


def faults(case: Case[Any], answer: httpx.Response) -> Iterator[str]:
    """What is wrong with an answer, by the document."""
    try:
        case.validate_response(answer, checks=CHECKS)
    except FailureGroup as found:
        for one in found.exceptions:
            # A client of a newer TiCDC may send a field that is not known here, as long as it asks for nothing.
            if not (isinstance(one, AcceptedNegativeData) and "additionalProperties" in one.message):
                yield f"{type(one).__name__}: {one.message}"


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("number", seeds(1, 1))
def test_answers_are_those_of_the_document_and_none_is_given_without_the_right(
    servers: tuple[Server, Server], number: int, mode: GenerationMode
) -> None:
    open_server, guarded = servers
    for found in schemathesis.openapi.from_dict(guarded.api.app.openapi()).get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()

        @seed(number)
        @FUZZED
        @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans(), stranger=st.sampled_from(STRANGERS), role=ANY_ROLE)
        def check(case: Case[Any], known: bool, stranger: Mapping[str, str], role: Role) -> None:
            if known and not (case.meta is not None and case.meta.is_negative_at(ParameterLocation.PATH)):
                case.path_parameters.update({name: value for name, value in THERE_ARE.items() if name in case.path_parameters})
            request = requests.Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
            needed = guarded.role(case)
            shown = (request.method, request.url, request.body, role)
            assert list(faults(case, open_server(request, {}))) == [], shown
            answer = guarded(request, stranger)
            assert needed is None or (answer.status_code == 401 and guarded.untouched()), (*shown, answer.text)
            answer = guarded(request, ROLES[role])
            assert list(faults(case, answer)) == [], shown
            assert (answer.status_code == 403) == (needed is not None and role < needed), (*shown, answer.text)
            assert answer.status_code != 403 or guarded.untouched(), shown

        try:
            check()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE, operation.label  # what takes nothing cannot be asked wrongly
