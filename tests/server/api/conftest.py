"""An API over a fake service."""

from __future__ import annotations

import pytest

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService


@pytest.fixture(scope="session")
def one_api() -> Api:
    """Built once: FastAPI takes its time to read forty routes."""
    return Api(FakeService())


@pytest.fixture
def api(one_api: Api) -> Api:
    """… over a service that knows nothing yet."""
    one_api.service.forget()
    return one_api


@pytest.fixture
def with_feed(api: Api) -> Api:
    """… that has the changefeed `test`."""
    answer = api.post("/api/v2/changefeeds", json={"changefeed_id": "test", "sink_uri": "blackhole://"})
    assert answer.status_code == 200
    api.service.calls.clear()
    return api
