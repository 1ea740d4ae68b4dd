"""One Chromium for all tests of this folder; they are skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser.chromium import MISSING, Page, chromium, opened


@pytest.fixture(scope="session")
def one_tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if chromium() is None:
        pytest.skip(MISSING)
    with opened(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def tab(one_tab: Page) -> Page:
    """The tab, in a usual window, without what another test left."""
    one_tab.faults.clear()
    one_tab.requests.clear()
    one_tab.size(1440, 900)
    return one_tab
