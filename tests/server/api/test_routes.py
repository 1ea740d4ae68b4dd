"""Every route of TiCDC's API v2 is there, is in the OpenAPI document, and answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.server.apis import Api
from tests.support.server.fake_service import CAPTURE

GOLDEN = Path(__file__).parents[2] / "golden" / "peers"
TICDC_ROUTES = [
    tuple(line.split("\t")[:2]) for line in (GOLDEN / "ticdc_api_v2_routes.tsv").read_text(encoding="utf-8").splitlines()[1:] if line
]
OLDER = {("POST", "/api/v2/captures/:capture_id/drain"), ("GET", "/api/v2/changefeeds/:changefeed_id/meta_info")}
"""Of TiCDC up to 8.5."""
VERSION_1 = [tuple(line.split("\t")[:2]) for line in (GOLDEN / "ticdc_api_v1_routes.tsv").read_text(encoding="utf-8").splitlines()[1:]]
TIDB_OPERATOR = {
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/health"),
    ("GET", "/api/v1/captures"),
    ("PUT", "/api/v1/captures/drain"),
    ("POST", "/api/v1/owner/resign"),
}
OWN = {("GET", "/metrics")}


@pytest.fixture(scope="module")
def document(one_api: Api) -> Any:
    return one_api.get("/openapi.json").json()


def operations(document: Any) -> set[tuple[str, str]]:
    found = document["paths"]
    return {(method.upper(), re.sub(r"\{(\w+)\}", r":\1", path)) for path, methods in found.items() for method in methods}


def test_the_routes_are_ticdcs(document: Any) -> None:
    assert operations(document) == {*TICDC_ROUTES, *VERSION_1} | OLDER | TIDB_OPERATOR | OWN


BODIES = {
    "/api/v2/changefeeds": {"sink_uri": "blackhole://", "changefeed_id": "other"},
    "/api/v2/log": {"log_level": "debug"},
    "/api/v2/log/redact": {"redact_info_log": "ON"},
    "/api/v2/unsafe/resolve_lock": {"region_id": 5},
    "/api/v2/verify_table": {"replica_config": {}},
    "/api/v2/get_all_tables": {"replica_config": {}},
    "/api/v2/tso": {},
    "/api/v2/unsafe/service_gc_safepoint": {},
    "/api/v2/changefeeds/test": {"target_ts": 2**60},
    "/api/v1/captures/drain": {"capture_id": CAPTURE},
    "/api/v1/changefeeds": {"sink_uri": "blackhole://", "changefeed_id": "other", "timezone": "system", "filter_rules": ["a.*"]},
    "/api/v1/changefeeds/test": {"target_ts": 2**60, "sink_config": {"dispatchers": [], "protocol": "canal-json"}},
    "/api/v1/changefeeds/test/tables/move_table": {"table_id": 104, "target_capture_id": CAPTURE},
    "/api/v1/log": {"log_level": "debug"},
}
REFUSED = {
    "move_table": "CDC:ErrTableNotSupportMove",
    "move_split_table": "CDC:ErrTableNotSupportMove",
    "split_table_by_region_count": "CDC:ErrTableNotSupportMove",
    "merge_table": "CDC:ErrTableNotSupportMove",
    "failpoints": "CDC:ErrAPIInvalidParam",
    "drain": "CDC:ErrSchedulerRequestFailed",
}
"""What means nothing here, or nothing with one server, is refused with a reason."""


@pytest.mark.parametrize(("method", "path"), sorted({*TICDC_ROUTES, *VERSION_1} | OLDER | TIDB_OPERATOR))
def test_each_answers_as_its_document_says(with_feed: Api, document: Any, method: str, path: str) -> None:
    api = with_feed
    if method == "PUT" and path.endswith(":changefeed_id"):
        api.post("/api/v2/changefeeds/test/pause")
    url = path.replace(":changefeed_id", "test").replace(":capture_id", CAPTURE)
    refused = next((code for word, code in REFUSED.items() if url.endswith(word)), None)
    more = {"json": BODIES[url]} if method != "GET" and url in BODIES else {}
    answer = api(method, url, params={"tableID": "104", "targetNodeID": "x"} if "_table" in url and "v2" in url else {}, **more)
    if refused:
        assert (answer.status_code, answer.json()["error_code"]) == (400, refused)
        assert answer.json()["error_msg"].startswith(f"[{refused}]")
        assert len(answer.json()["error_msg"]) > len(refused) + 20
    else:
        assert answer.status_code in (200, 202), answer.text
    _check_document(document, method, path, answer.status_code, answer.headers["content-type"], answer.text)


def _check_document(document: Any, method: str, path: str, status: int, kind: str, text: str) -> None:
    """The answer is what OpenAPI says, but for fields that are left out because they are empty."""
    if not kind.startswith("application/json"):
        return
    operation = document["paths"][re.sub(r":(\w+)", r"{\1}", path)][method.lower()]
    schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
    found = jsonschema.Draft202012Validator({**schema, "components": document["components"]})
    omitted = [error for error in found.iter_errors(json.loads(text)) if error.validator != "required"]
    assert omitted == []


def test_the_page_needs_no_other_host(api: Api) -> None:
    for path in ("/docs", "/swagger/index.html"):
        page = api.get(path)
        assert page.status_code == 200
        assert re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]+", page.text) == []
        assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/api/v2/changefeedz", 404, "did you mean `/api/v2/changefeeds`"),
        ("GET", "/nothing", 404, "there is no page /nothing"),
        ("PATCH", "/api/v2/changefeeds", 405, "does not take PATCH"),
        ("POST", "/status", 405, "does not take POST"),
    ],
)
def test_pages_and_methods_that_are_not_there(api: Api, method: str, path: str, status: int, said: str) -> None:
    answer = api(method, path)
    assert answer.status_code == status
    assert said in answer.json()["error_msg"]
