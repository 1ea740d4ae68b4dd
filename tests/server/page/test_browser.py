"""The page in a headless Chromium: what it shows, what a person does with it, and that text of others stays text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser.chromium import Page
from tests.support.server.apis import in_loop
from tests.support.server.fake_service import FakeService
from tests.support.server.page_scenes import HTML, LINES, ROW, failure, healthy_capture, held_capture, info, many, mixed, now_ts, scene
from tidemill.changefeed.states import State
from tidemill.server.api import create_app
from tidemill.server.api.listener import Listener
from tidemill.server.api.tokens import Tokens
from tidemill.server.page.watch import Watch

pytestmark = pytest.mark.slow
LIVE = "document.querySelector('#link')?.textContent === 'live' && document.querySelector('#capture .facts')"
TOKEN = "0123456789abcdef-two"


@contextmanager
def shown(tab: Page, service: FakeService, watch: Watch, tokens: Tokens | None = None) -> Iterator[str]:
    """Serve a scene, and open its page."""
    with in_loop() as run:
        listener = Listener(create_app(service, watch=watch, tokens=tokens))
        run(listener.start("127.0.0.1:0"))
        try:
            tab.open(f"http://{listener.address}/")
            tab.until(LIVE)
            yield listener.address
        finally:
            tab.open("about:blank")
            watch.close()
            run(listener.stop())


def press(tab: Page, *keys: str) -> None:
    for key in keys:
        tab.key(key)


def kept(tab: Page, name: str, *, whole: bool = False) -> None:
    """Write a picture for `make page`, which says where."""
    folder = os.environ.get("TIDEMILL_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tab.screenshot(Path(folder) / f"{name}.png", whole=whole)


def test_a_region_that_split_a_second_ago_is_no_alarm(tab: Page) -> None:
    held = held_capture()
    holding = {**(held.holding or {}), "seconds": 1.0, "cause": "not subscribed", "last_error": "epoch_not_match", "lock": None}
    with shown(tab, *scene([], replace(held, holding=holding, stuck=[], held_tables=[]))):
        assert tab.text("#alerts") == ""
        assert "No region, lock or table holds the log up." in tab.text("#capture")


def test_all_states_with_errors_lag_charts_and_what_holds_the_log(tab: Page) -> None:
    with shown(tab, *scene(mixed(), held_capture())) as address:
        tab.until("document.querySelectorAll('#feeds .spark .line').length === 7")
        assert tab.js("[...document.querySelectorAll('#feeds .name')].map((one) => one.textContent)")[:3] == [
            "items-avro",
            "orders-eu",
            "audit",
        ]
        text = tab.text("#feeds")
        assert f"--skip-row '{ROW}' goes on without this row" in text
        assert "tried again at" in text
        assert "shop.orders holds the resolved ts for 5 min 34 s" in tab.text("#alerts")
        assert "Let the transaction end" in tab.text("#capture")
        tab.until("document.querySelectorAll('#log .line').length === 5")
        assert tab.js("document.querySelectorAll('#log .line.warn').length") == 2
        assert tab.js("document.title").startswith("(2) Tidemill")
        assert tab.faults == []
        assert {url.split("/")[2] for url in tab.requests if url != "about:blank"} == {address}, "nothing is asked of other hosts"
        kept(tab, "page-light")
        tab.size(1440, 900, dark=True)
        assert tab.js("getComputedStyle(document.documentElement).colorScheme") == "dark"
        kept(tab, "page-dark")
        tab.key("d")  # system → light
        assert tab.js("getComputedStyle(document.documentElement).colorScheme") == "light"
        tab.key("d")
        tab.key("d")
        assert tab.js("getComputedStyle(document.documentElement).colorScheme") == "dark"
        for width in (390, 800, 1100):
            tab.size(width, 900)
            assert tab.js("document.documentElement.scrollWidth") <= width, "nothing is wider than the window"
            kept(tab, f"page-{width}")


def test_the_details_have_charts_tables_and_the_configuration(tab: Page) -> None:
    with shown(tab, *scene(mixed(), held_capture())):
        press(tab, "j", "j", "k", "Enter")
        tab.until("document.querySelectorAll('#details .chart .line').length === 3 && document.querySelector('#details table')")
        assert tab.js("location.hash") == "#/changefeed/items-avro"
        text = tab.text("#details")
        assert "shop.items" in text
        assert "not subscribed" in text
        assert "Checkpoint ts" in text
        assert '"protocol": "open-protocol"' in tab.js("document.querySelector('#details .config').textContent")
        kept(tab, "details")
        tab.key("Escape")
        tab.until("document.querySelector('#details').hidden")
        assert tab.faults == []


def test_text_of_others_stays_text(tab: Page) -> None:
    evil = info("evil", State.FAILED, sink=f"kafka://host/{HTML}", error=failure(HTML, HTML, HTML), warnings=(HTML,))
    evil = replace(evil, given_config={"sink": {"csv": {"null": HTML}}})
    capture = replace(held_capture(), log=HTML, paused=HTML, growth=HTML, state=HTML, error={"code": HTML, "message": HTML})
    for one in (capture.holding, *capture.held_tables, *capture.stuck):
        one |= {"table": HTML, "last_error": HTML, "store_address": HTML}
    with shown(tab, *scene([evil], capture, (f"[x] [INFO] {HTML}", HTML))):
        tab.js("location.hash = '#/changefeed/evil'")
        tab.until("document.querySelector('#details table') && document.querySelector('#log .line')")
        for place in ("#feeds", "#alerts", "#capture", "#log", "#details"):
            assert HTML in tab.js(f"document.querySelector('{place}').textContent"), place
        tab.js("location.hash = '#/changefeed/' + encodeURIComponent('<img src=x onerror=window.hacked=3>')")
        tab.until("document.querySelector('#details').textContent.includes('onerror')")
        assert tab.js("document.querySelectorAll('main img, main script, #details img').length") == 0
        assert tab.js("window.hacked") is None
        assert tab.faults == []
        # Even what a script of the page made of a text would not run.
        assert tab.js("(() => { try { document.body.innerHTML = '<b>x</b>'; return 'made'; } catch { return 'refused'; } })()") == "refused"


def test_a_person_pauses_resumes_and_removes(tab: Page) -> None:
    service, watch = scene([info("one"), info("two")], healthy_capture())
    with shown(tab, service, watch):
        press(tab, "j", "p")
        tab.until("document.querySelector('dialog')")
        assert service.feeds["one"].state is State.NORMAL, "nothing happens before it is confirmed"
        tab.key("Escape")
        tab.until("!document.querySelector('dialog')")
        tab.click("[data-feed=one] button.pause")
        tab.key("Enter")
        tab.until("document.querySelector('[data-feed=one] .badge').textContent === 'stopped'")
        assert service.feeds["one"].state is State.STOPPED
        tab.key("r")
        tab.until("document.querySelector('dialog')")
        tab.key("Enter")
        tab.until("document.querySelector('[data-feed=one] .badge').textContent === 'normal'")
        press(tab, "x")
        tab.until("document.querySelector('dialog button.danger').disabled")
        tab.type("on")
        assert tab.js("document.querySelector('dialog button.danger').disabled")
        tab.type("e")
        tab.key("Enter")
        tab.until("!document.querySelector('[data-feed=one]')")
        assert [*service.feeds] == ["two"]
        assert tab.faults == []


def test_a_person_skips_a_row_or_goes_on_from_elsewhere(tab: Page) -> None:
    wrong = failure("TM:ErrMalformedRow", "a row", f"--skip-row '{ROW}' goes on without this row")
    service, watch = scene([info("bad", State.FAILED, error=wrong)], healthy_capture())
    with shown(tab, service, watch):
        press(tab, "j", "s")
        tab.until("document.querySelector('dialog')")
        assert tab.js("document.querySelector('dialog input[type=text]').value") == ROW
        tab.js("[...document.querySelectorAll('dialog input')].at(-1).focus()")
        tab.type("bad")
        tab.key("Enter")
        tab.until("document.querySelector('[data-feed=bad] .badge').textContent === 'normal'")
        assert ("resume", (ROW,)) in service.calls

        service.feeds["bad"] = info("bad", State.STOPPED)
        tab.until("document.querySelector('[data-feed=bad] .badge').textContent === 'stopped'")
        tab.key("s")
        tab.until("document.querySelector('dialog')")
        ts = now_ts(60) + 12345
        for place, text in ((3, str(ts)), (4, "bad")):
            tab.js(f"document.querySelectorAll('dialog input')[{place}].focus()")
            tab.type(text)
        kept(tab, "skip")
        tab.key("Enter")
        tab.until("document.querySelector('[data-feed=bad] .badge').textContent === 'normal'")
        assert ("resume", ts) in service.calls, "each digit of the TSO counts"
        assert tab.faults == []


def test_a_person_creates_a_changefeed_and_is_told_what_is_wrong(tab: Page) -> None:
    service, watch = scene([], healthy_capture())
    with shown(tab, service, watch):
        assert "There are no changefeeds yet" in tab.text("#no-feeds")
        tab.key("c")
        tab.until("document.querySelector('dialog textarea')")
        for place, text in ((0, "orders"), (1, "blackhole://"), (2, "-1h")):
            tab.js(f"document.querySelectorAll('dialog input')[{place}].focus()")
            tab.type(text)
        tab.js("document.querySelector('dialog textarea').focus()")
        tab.type("[filter]\nrulez = ['shop.*']\n")
        tab.js("document.querySelector('dialog form').requestSubmit()")
        tab.until("!document.querySelector('dialog .fault').hidden")
        assert "did you mean `rules`" in tab.text("dialog .fault")
        kept(tab, "create")
        tab.js("document.querySelector('dialog textarea').value = \"[filter]\\nrules = ['shop.*']\"")
        tab.js("document.querySelector('dialog form').requestSubmit()")
        tab.until("document.querySelector('[data-feed=orders]')")
        (wanted,) = [what for name, what in service.calls if name == "create"]
        assert wanted.replica_config["filter"] == {"rules": ["shop.*"]}
        assert wanted.start_ts == service.now - (3_600_000 << 18)


def test_a_token_is_asked_for_and_kept_for_the_tab(tab: Page, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"ops {TOKEN}\n")
    path.chmod(0o600)
    service, watch = scene([info("one")], healthy_capture(), tokens=True)
    with shown(tab, service, watch, Tokens(path)):
        tab.until("document.querySelector('#log button')")
        press(tab, "j", "p")
        tab.until("document.querySelector('dialog')")
        tab.key("Enter")
        tab.until("document.querySelector('dialog input[type=password]')")
        tab.js("document.querySelector('dialog input[type=password]').focus()")
        tab.type("0123456789abcdef-wrong")
        tab.key("Enter")
        tab.until("document.querySelector('dialog input[type=password]')?.value === ''")
        assert service.feeds["one"].state is State.NORMAL
        tab.type(TOKEN)
        tab.key("Enter")
        tab.until("document.querySelector('[data-feed=one] .badge').textContent === 'stopped'")
        assert TOKEN not in tab.js(
            "document.documentElement.outerHTML + location.href + document.cookie + JSON.stringify({...localStorage})"
        )
        tab.js("sessionStorage.clear()")


def test_two_hundred_changefeeds_can_be_filtered_and_sorted(tab: Page) -> None:
    with shown(tab, *scene(many(200), healthy_capture())):
        tab.until("document.querySelectorAll('#feeds tbody').length === 200")
        press(tab, "/")
        tab.type("feed-1 warning")
        tab.until("document.querySelectorAll('#feeds tbody').length === 2")
        assert tab.text("#shown") == "2 of 200"
        tab.js("document.querySelector('#filter').value = ''; document.querySelector('#filter').dispatchEvent(new Event('input'))")
        tab.click("th[data-key=lag] button")
        assert tab.js("document.querySelector('th[data-key=lag]').getAttribute('aria-sort')") == "descending"
        assert int(tab.js("document.querySelector('#feeds tbody').dataset.feed")[-3:]) % 7 == 6, "the one that is furthest behind"
        kept(tab, "many")
        assert tab.faults == []


def test_a_server_that_goes_away_is_told_and_comes_back(tab: Page) -> None:
    service, watch = scene([info("one")], healthy_capture())
    with in_loop() as run:
        listener = Listener(create_app(service, watch=watch))
        run(listener.start("127.0.0.1:0"))
        address = listener.address
        tab.open(f"http://{address}/")
        tab.until(LIVE)
        watch.close()
        run(listener.stop())
        tab.until("document.querySelector('#link').textContent.startsWith('no answer')")
        again = Listener(create_app(service, watch=scene([], healthy_capture(), LINES[:1])[1]))
        run(again.start(address))
        tab.until("document.querySelector('#link').textContent === 'live'")
        tab.until("document.querySelectorAll('#log .line').length === 1")
        tab.open("about:blank")
        run(again.stop())


def test_keys_and_words_are_explained(tab: Page) -> None:
    with shown(tab, *scene(mixed()[:2], healthy_capture())):
        tab.key("?")
        tab.until("document.querySelector('dialog')")
        text: Any = tab.text("dialog")
        for word in ("select the next changefeed", "checkpoint lag", "resolved ts lag", "held up"):
            assert word in text
        tab.key("Escape")
        tab.until("!document.querySelector('dialog')")
