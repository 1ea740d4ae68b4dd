"""What a few bytes can ask for has a bound that their reader sets: expanded bytes, JSON values, compiled expressions, comparisons."""

from __future__ import annotations

import difflib
import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from tests.support.thorough import few_of
from tidemill import statefile
from tidemill.binlog.nodes import read_node
from tidemill.budget import FILTER, MESSAGE, REQUEST, STATE, Budget, Limits, OverBudget, current, json_nodes
from tidemill.canal.conversation.filters import FilterError, NameFilter
from tidemill.config.file import check_config
from tidemill.config.toml_text import parse_toml
from tidemill.config.uri import SinkUri, parse_sink_uri
from tidemill.errors import ConfigError, MalformedMessage, TidemillError
from tidemill.protocols import canal_json, debezium, simple
from tidemill.protocols.common.claim_check import unpack
from tidemill.protocols.open.decode import decode as decode_open
from tidemill.rules.event_filter import EventFilters
from tidemill.rules.table_filter import TableFilter
from tidemill.server.changefeeds.operations import checked
from tidemill.server.options import ServerOptions
from tidemill.server.settings import FeedSettings
from tidemill.sinks.mysql.control import Ddl
from tidemill.views.targets.kafka_messages import FEED, RESOLVED_TS, VIEW, mark_of

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def values_of(document: object) -> int:
    if isinstance(document, dict):
        return 1 + sum(1 + values_of(one) for one in document.values())
    return 1 + sum(map(values_of, document)) if isinstance(document, list) else 1


@given(documents, st.booleans())
def test_values_of_json_are_counted_before_they_are_made(document: object, spaced: bool) -> None:
    text = json.dumps(document, separators=None if spaced else (",", ":"), ensure_ascii=spaced).encode("utf-8", "surrogatepass")
    exact = values_of(document)
    assert exact <= json_nodes(text, exact * 10) <= 3 * exact
    if exact > 100:
        with pytest.raises(OverBudget):
            Budget(Limits(nodes=exact // 4)).json(text)


def test_signs_within_strings_are_no_values() -> None:
    text = json.dumps({"a": "[1,2,{" * 1000, 'b"\\': '\\",'}).encode()
    assert Budget(Limits(nodes=10)).json(text)["a"] == "[1,2,{" * 1000


def lz4(text: bytes) -> bytes:
    return bytes(pa.Codec("lz4").compress(text, asbytes=True))


@pytest.mark.parametrize("item", few_of([b'{"a":{"b":[]}},', b"[],", b"{},", b'"",', b"0,", b'{"a":0},'], 2))
def test_a_small_message_makes_no_millions_of_values(item: bytes) -> None:
    text = b'{"a":[' + item * (1 << 22)
    bomb = lz4(text[: 8 << 20] + b"0]}")
    head = b'{"ts":1,"scm":"s","tbl":"t","t":1}'
    key = (1).to_bytes(8, "big") + len(head).to_bytes(8, "big") + head
    readers = (
        canal_json.decode,
        simple.decode,
        lambda value: debezium.decode(None, value),
        lambda value: decode_open(key, len(value).to_bytes(8, "big") + value),
    )
    for read in readers:
        tracemalloc.start()
        with pytest.raises(MalformedMessage, match="its JSON has more than 2,097,152 values"):
            read(bomb)
        assert tracemalloc.get_traced_memory()[1] < 400 << 20
        tracemalloc.stop()


def test_a_claim_check_file_is_foreign_too() -> None:
    with pytest.raises(MalformedMessage, match="more than"):
        unpack(b'{"key":"","value":[' + b"[]," * (4 << 20) + b"0]}")


def test_parts_of_one_input_share_its_budget() -> None:
    budget = Budget(Limits(bytes_out=1000, nodes=10))
    budget.spend("bytes_out", 900)
    assert budget.left("bytes_out") == 100
    with pytest.raises(OverBudget, match="1,000 bytes"):
        budget.spend("bytes_out", 101)
    assert MESSAGE.bytes_out == 256 << 20


LARGE = "/(?i)[\\pL\\pN]{%d}/.x"


def test_one_expression_of_a_request_cannot_be_large() -> None:
    with Budget(REQUEST).in_force(), pytest.raises(ConfigError, match="expression too large"):
        TableFilter([LARGE % 300])
    TableFilter([LARGE % 300])  # a file of the owner's own


@pytest.mark.parametrize("rule", ["/\\w{%d}/.x", "/[^\\x00]{%d}/.x", "/(a|b){%d}/./c{%d}/", "a*.b*?%d"])
def test_all_expressions_of_a_request_together_cannot_be_large(rule: str) -> None:
    rules = [rule.replace("%d", str(100 + i % 90)) for i in range(20_000)]
    with Budget(REQUEST).in_force(), pytest.raises(ConfigError, match=r"too large together|more than 25,000 expressions"):
        TableFilter(rules)


@pytest.mark.parametrize(
    "config",
    [
        {"filter": {"rules": [LARGE % 300]}},
        {"filter": {"event-filters": [{"matcher": ["a.b"], "ignore-sql": [LARGE % 300]}]}},
        {"sink": {"dispatchers": [{"matcher": [LARGE % 300], "partition": "ts"}]}},
        {"sink": {"column-selectors": [{"matcher": [LARGE % 300], "columns": ["a"]}]}},
        {"sink": {"column-selectors": [{"matcher": ["a.b"], "columns": ["/[\\pL]{999}/"]}]}},
    ],
)
def test_every_expression_of_a_configuration_is_paid_for(config: dict[str, object]) -> None:
    with Budget(REQUEST).in_force(), pytest.raises(ConfigError, match="too large"):
        assert isinstance(check_config(config).event_filters(), EventFilters)


def test_what_a_stranger_asked_for_is_not_kept() -> None:
    re2.purge()
    with Budget(REQUEST).in_force():
        TableFilter(["/[\\pL]{3}/.x"])
    assert re2._Regexp._make.cache_info().currsize == 0


def test_comparing_all_tables_with_all_rules_has_a_bound() -> None:
    with Budget(Limits(matches=1000)).in_force():
        rules = TableFilter([f"a.t{i}" for i in range(100)])
        with pytest.raises(TidemillError, match="1,000 steps"):
            [rules.matches("b", str(i)) for i in range(11)]
    assert current().left("matches") > 1 << 60


@pytest.mark.parametrize(
    "filter_",
    [
        ",".join(rf"\w{{900}}x{i}" for i in range(60)),
        ",".join(rf"{i}[^a]{{900}}" for i in range(60)),
        ",".join(f"(?=[a-z]{{900}}){i}" for i in range(60)),
        ",".join(f"{i}(x{{300}})" for i in range(4000)),
    ],
)
def test_a_filter_of_canal_cannot_be_large(filter_: str) -> None:
    with pytest.raises(FilterError, match="too large"):
        NameFilter(filter_)


def test_long_lists_of_names_are_no_large_filter() -> None:
    found = NameFilter(",".join(rf"db{i}\.table_{i}_.*" for i in range(2000)))
    assert found.matches("db7.table_7_x")
    assert NameFilter(r"\w{1,30}\.t").matches("a.t")
    assert FILTER.instructions < REQUEST.instructions


@pytest.mark.parametrize(
    "key", ["a." * 200_000 + "a = 1", "[" + "a." * 200_000 + "a]", 'x = {"a b".' + "c . " * 200_000, '"a".' * 70 + "a=1"]
)
def test_keys_of_toml_with_many_dots_are_refused_before_they_are_read(key: str) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_toml(key)


def test_dots_in_texts_and_comments_are_none_of_a_key() -> None:
    dots = "a." * 200
    assert parse_toml(f'x = "{dots}" # {dots}\ny = [\'{dots}\', """\n{dots}"""]\nz = 1.5') == {"x": dots, "y": [dots, dots], "z": 1.5}


def test_texts_of_toml_that_do_not_end_cost_linear_time() -> None:
    """In quadratic time this takes an hour: the test's timeout then ends it."""
    for text in ('"""\n' + '\\"""\n' * 200_000, "'''\n" + "''\n" * 200_000, '"""\n' + '\\"""\n' * 200_000 + "\\"):
        with pytest.raises(ValueError, match=r"Unterminated|Unescaped|Expected"):
            parse_toml(text)
    ended = ['x = """a\\""" ""b\\\\"""', "y = '''c'' \\'''"]  # with quotes and backslashes in them
    assert parse_toml("\n".join(ended)) == {"x": 'a""" ""b\\', "y": "c'' \\"}
    with pytest.raises(ValueError, match="nested too deep"):
        parse_toml("\n".join([*ended, "a." * 200 + "a = 1"]))


def test_thousands_of_faults_are_a_hundred() -> None:
    with pytest.raises(ConfigError, match="and 9900 more"):
        check_config({f"unknown{i}": i for i in range(10_000)})


def test_a_request_has_so_many_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes half a millisecond, and a URI of 1 MiB has 170,000 unknown names."""
    guesses = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda word, *more, **options: guesses.append(word) or [])
    unknown = "&".join(f"sasl-us{i}=1" for i in range(500))
    with Budget(REQUEST).in_force():
        with pytest.raises(ConfigError, match="and 400 more"):
            parse_sink_uri(f"kafka://h:1/t?protocol=canal-json&{unknown}")
        with pytest.raises(ConfigError, match="unknown key"):
            check_config({f"unknown{i}": i for i in range(500)})
    assert len(guesses) == REQUEST.guesses


def test_conditions_on_rows_of_a_request_have_a_bound() -> None:
    rule = {"matcher": ["a.b"], "ignore-insert-value-expr": " or ".join(["a=1"] * 40_000)}
    with Budget(REQUEST).in_force(), pytest.raises(TidemillError, match="conditions on rows have more than 200,000 characters"):
        check_config({"filter": {"event-filters": [rule]}})
    small = {"matcher": ["a.b"], "ignore-insert-value-expr": "a=1"}
    with Budget(REQUEST).in_force():
        check_config({"filter": {"event-filters": [small]}})


def test_a_sink_uri_by_the_api_is_held_against_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server parses it, and not only its TOML."""
    limits: list[Limits] = []
    parse = FeedSettings.sink

    def observed(settings: FeedSettings, data_dir: Path) -> SinkUri:
        limits.append(current().limits)
        return parse(settings, data_dir)

    monkeypatch.setattr(FeedSettings, "sink", observed)
    checked(FeedSettings("f", "blackhole://", 1, 0.0, "1", "7"), ServerOptions(str(tmp_path / "log"), tmp_path / "data", "127.0.0.1:8300"))
    assert limits == [REQUEST]


def _lists(count: int) -> bytes:
    return b'{"a":[' + b"[]," * count + b"[]]}"


def test_a_state_of_somebody_elses_bucket_or_database_has_a_budget() -> None:
    text = _lists(STATE.nodes)
    readers: list[Callable[[], object]] = [
        partial(statefile.read, text, "s3://bucket/state.json"),
        partial(read_node, text),
        partial(Ddl.parse, text),
    ]
    for read in readers:
        with pytest.raises(TidemillError, match="more than 4,194,304 values"):
            read()


def test_a_mark_of_a_views_topic_has_a_budget() -> None:
    key = json.dumps({VIEW: "v", FEED: "view-v-1"}).encode()
    mark = b'{"%s":7,' % RESOLVED_TS.encode()
    assert mark_of(key, mark + _lists(10)[1:]) == ("view-v-1", 7)
    assert mark_of(key, mark + _lists(MESSAGE.nodes)[1:]) is None
