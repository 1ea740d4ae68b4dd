"""The page's routes without a browser: files, policy, who may read what, what a person typed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.server.apis import Api
from tests.support.server.fake_service import FakeService
from tests.support.server.page_scenes import HTML, ROW, failure, healthy_capture, info, mixed, scene
from tidemill.changefeed.states import State
from tidemill.server.api import create_app
from tidemill.server.api.tokens import Tokens
from tidemill.server.page import files
from tidemill.tso import parse

STATIC = Path(files.__file__).with_name("static")


def api_of(service: FakeService, watch: Any, tokens: Tokens | None = None) -> Api:
    found = Api.__new__(Api)
    found.service, found.app = service, create_app(service, tokens=tokens, watch=watch)
    return found


@pytest.fixture(scope="module")
def page() -> Api:
    return api_of(*scene(mixed(), healthy_capture()))


def test_the_page_and_its_files_have_a_policy_that_runs_nothing_else(page: Api) -> None:
    served = files.files()
    assert {"/", "/page/app.js", "/page/style.css", "/page/icon.svg"} <= served.keys()
    for path, file in served.items():
        answer = page.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, file.media_type)
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert page("HEAD", path).status_code == 200
    assert page.get("/page/nothing.js").status_code == 404
    assert page.get("/page/..%2f..%2fservice.py").status_code == 404


def test_nothing_comes_from_other_hosts_and_nothing_is_inline() -> None:
    html = (STATIC / "index.html").read_text()
    assert re.findall(r"(?:src|href)=\"(?!/)", html) == []
    assert not re.search(r"<script(?![^>]* src=)|<style|\bon\w+=|\bstyle=|javascript:", html)
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style|https?://",
            text.replace("http://www.w3.org/2000/svg", ""),
        ), path
    assert not re.search(r"url\(|@import|https?://", (STATIC / "style.css").read_text())
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", (STATIC / "icon.svg").read_text())


def test_the_wheel_has_every_file_of_the_page() -> None:
    """Setuptools takes the files that a pattern of package-data names."""
    settings = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["tidemill"]
    package = STATIC.parents[2]
    found = {path.relative_to(package) for pattern in patterns for path in package.glob(pattern)}
    assert {path.relative_to(package) for path in STATIC.iterdir()} <= found


def test_each_module_that_is_imported_is_served_and_each_id_is_in_the_page() -> None:
    html = (STATIC / "index.html").read_text()
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        for name in re.findall(r'from "\./([^"]+)"', text):
            assert f"/page/{name}" in files.files()
        for name in re.findall(r'byId\("([^"]+)"\)', text):
            assert f'id="{name}"' in html, f"{path.name} asks for #{name}"


def test_each_key_is_in_the_help_and_in_the_docs() -> None:
    handled = re.search(r"const does = \{(.*?)\}\[event\.key\]", (STATIC / "app.js").read_text(), re.DOTALL)
    assert handled is not None
    keys = [key.strip("'\"") for key in re.findall(r'^\s+("[^"]+"|\w+):? ?', handled[1], re.MULTILINE)]
    help_ = re.search(r"const KEYS = \[(.*?)\n\];", (STATIC / "dialogs.js").read_text(), re.DOTALL)
    assert help_ is not None
    docs = (Path(__file__).parents[3] / "docs/web-page.md").read_text()
    names = {"ArrowDown": "↓", "ArrowUp": "↑", "Escape": "Esc", "create": "c"}
    for key in keys:
        name = names.get(key, key)
        assert re.search(rf'["\s]{re.escape(name)}[",]', help_[1]), name
        assert f"`{name}`" in docs, name


def test_the_overview_has_everything(page: Api) -> None:
    found = page.get("/api/page/overview").json()
    assert found.keys() == {"now", "server", "captures", "processes", "capture", "changefeeds"}
    assert len(found["changefeeds"]) == 7
    assert found["server"]["read_only"] is False


def test_text_of_others_comes_as_text(page: Api) -> None:
    evil = info("evil", State.FAILED, error=failure("TM:ErrSink", HTML, HTML))
    answer = api_of(*scene([evil], healthy_capture())).get("/api/page/overview")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["changefeeds"][0]["error"]["message"] == HTML


def test_history_and_tables(page: Api) -> None:
    assert len(page.get("/api/page/history").json()["checkpoint_lag_s"]) == 7
    assert len(page.get("/api/page/history?changefeed=orders").json()["times"]) == 360
    assert page.get("/api/page/history?changefeed=nothing").json()["times"] == []
    assert [one["table"] for one in page.get("/api/page/tables?changefeed=orders").json()["items"]] == ["items", "orders"]
    assert page.get("/api/page/tables?changefeed=nothing").json()["error_code"] == "CDC:ErrChangeFeedNotExists"
    assert page.get("/api/page/tables?changefeed=../x").status_code == 400
    assert page.get("/api/page/tables").status_code == 400


def test_the_end_of_the_log(page: Api) -> None:
    found = page.get("/api/page/log").json()
    assert found["last"] == len(found["lines"]) == 5
    assert page.get(f"/api/page/log?after={found['last']}&wait=0.05").json() == {"last": 5, "lines": []}
    for query in ("after=x", "after=-2", "wait=-1", "wait=1e9", "wait=nan"):
        assert page.get(f"/api/page/log?{query}").status_code == 400


# ---- who may


@pytest.fixture
def locked(tmp_path: Path) -> Api:
    path = tmp_path / "tokens"
    path.write_text("ops 0123456789abcdef-two\n")
    path.chmod(0o600)
    service, watch = scene(mixed(), healthy_capture(), tokens=True)
    return api_of(service, watch, Tokens(path))


def test_with_tokens_the_log_is_for_those_who_have_one_and_the_page_for_all(locked: Api) -> None:
    assert locked.get("/").status_code == 200
    assert locked.get("/api/page/overview").json()["server"]["needs_token"] is True
    assert locked.get("/api/page/log").status_code == 401
    assert locked.get("/api/page/log", headers={"Authorization": "Bearer 0123456789abcdef-two"}).status_code == 200
    assert locked.post("/api/v2/changefeeds/orders/pause").status_code == 401
    assert locked.post("/api/v2/changefeeds/orders/pause", headers={"Authorization": "Bearer 0123456789abcdef-two"}).json() == {}


def test_a_page_of_another_site_changes_nothing(page: Api) -> None:
    answer = page.post("/api/v2/changefeeds/orders/pause", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403


# ---- what a person typed


def test_a_file_becomes_the_apis_json_and_a_time_a_tso(page: Api) -> None:
    found = page.post(
        "/api/page/check",
        json={"config": "[filter]\nrules = ['a.*']\n", "start_ts": "2026-11-24T10:00:00Z", "target_ts": "470000000000000000"},
    ).json()
    assert found["replica_config"] == {"filter": {"rules": ["a.*"]}}
    assert found["start_ts"] == str(parse("2026-11-24T10:00:00Z"))
    assert found["target_ts"] == "470000000000000000"
    now = int(page.post("/api/page/check", json={"overwrite_checkpoint_ts": "now"}).json()["overwrite_checkpoint_ts"])
    assert now == page.service.now
    assert page.post("/api/page/check", json={"skip_rows": [ROW]}).json()["skip_rows"] == [ROW]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"config": "[filter\n"}, "not TOML"),
        ({"config": "[filter]\nrulez = []\n"}, "did you mean `rules`"),
        ({"config": "x = " + "[" * 2000 + "]" * 2000}, "not TOML"),
        ({"start_ts": "yesterday"}, "start-ts: timestamp 'yesterday' is not understood"),
        ({"skip_rows": ["shop.orders"]}, "expected DATABASE.TABLE:KEY@COMMIT_TS"),
        ({"start_ts": "1" * 65}, "at most 64 characters"),
    ],
)
def test_what_is_wrong_with_it_is_said(page: Api, body: dict[str, Any], said: str) -> None:
    answer = page.post("/api/page/check", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error_msg"]


def test_a_row_is_skipped_by_a_resume(page: Api) -> None:
    page.service.calls.clear()
    assert page.post("/api/v2/changefeeds/items-avro/resume", content=json.dumps({"skip_rows": [ROW]})).json() == {}
    assert page.service.calls[-1:] == [("resume", (ROW,))]
