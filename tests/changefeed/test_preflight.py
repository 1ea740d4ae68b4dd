"""What a sink does not answer, or refuses, is known before anything is started."""

from __future__ import annotations

import pytest

from tidemill.changefeed.preflight import check_sink_reachable
from tidemill.config.uri import parse_sink_uri
from tidemill.errors import SinkUnavailable


def test_a_database_that_is_not_there() -> None:
    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1\b"):
        check_sink_reachable(parse_sink_uri("mysql://u:geheim@127.0.0.1:1/"))
