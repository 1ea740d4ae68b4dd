"""Table routing: which names tables and schemas have downstream."""

from __future__ import annotations

import pytest

from tidemill.config.file import ChangefeedConfig, parse_config
from tidemill.errors import ConfigError
from tidemill.rules.table_routes import InvalidTableRoutingRule, TableRoutingFailed


def config(*dispatchers: str, more: str = "") -> ChangefeedConfig:
    return parse_config(more + "\n[sink]\ndispatchers = [" + ", ".join("{" + d + "}" for d in dispatchers) + "]")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("target-schema = 'archive'", ("archive", "orders")),
        ("target-table = '{table}_bak'", ("sales", "orders_bak")),
        ("target-schema = '{schema}_mirror'", ("sales_mirror", "orders")),
        ("target-schema = 'archive', target-table = '{schema}_{table}'", ("archive", "sales_orders")),
        ("target-table = '{table}{table}$é'", ("sales", "ordersorders$é")),
    ],
)
def test_targets_of_a_table(target: str, expected: tuple[str, str]) -> None:
    routes = config(f"matcher = ['sales.*'], {target}").table_routes()
    assert routes
    assert routes.table("sales", "orders") == expected
    assert routes.table("other", "orders") == ("other", "orders")


def test_the_first_dispatcher_with_a_target_counts() -> None:
    routes = config(
        "matcher = ['sales.*'], topic = 'only-a-topic'",
        "matcher = ['sales.*', '!sales.tmp_*'], target-schema = 'a'",
        "matcher = ['*.*'], target-schema = 'b'",
    ).table_routes()
    assert routes.table("sales", "orders") == ("a", "orders")
    assert routes.table("sales", "tmp_1") == ("b", "tmp_1")


def test_names_are_matched_by_case_sensitive_and_filled_as_they_are() -> None:
    one = "matcher = ['sales.*'], target-table = '{schema}_{table}'"
    assert config(one).table_routes().table("Sales", "Orders") == ("Sales", "Sales_Orders")
    assert config(one, more="case-sensitive = true").table_routes().table("Sales", "Orders") == ("Sales", "Orders")


def test_a_name_that_looks_like_a_placeholder_is_not_filled_again() -> None:
    routes = config("matcher = ['*.*'], target-table = '{schema}.{table}'").table_routes()
    assert routes.table("{table}", "{schema}") == ("{table}", "{table}.{schema}")


def test_a_schema_has_the_one_target_of_all_that_match() -> None:
    agreed = config("matcher = ['s.a'], target-schema = 'x'", "matcher = ['s.*'], target-schema = 'x', target-table = 'z'").table_routes()
    assert agreed.table("s", "") == ("x", "")
    assert agreed.table("t", "") == ("t", "")
    assert agreed.table("", "") == ("", "")


@pytest.mark.parametrize("second", ["target-schema = 'y'", "target-table = 'y'"])
def test_a_schema_with_two_targets_is_an_error_that_names_them(second: str) -> None:
    routes = config("matcher = ['s.a'], target-schema = 'x'", f"matcher = ['s.*'], {second}").table_routes()
    with pytest.raises(TableRoutingFailed, match=r"schema s has no .* target: sink.dispatchers\[0\] says x, sink.dispatchers\[1\] "):
        routes.schema("s")


@pytest.mark.parametrize("text", ["{db}", "{schema", "table}", "{}", "{{schema}}", "{Schema}"])
@pytest.mark.parametrize("key", ["target-schema", "target-table"])
def test_other_braces_are_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match="no other braces") as caught:
        config(f"matcher = ['a.b'], {key} = '{text}'")
    assert isinstance(caught.value, InvalidTableRoutingRule)
    assert f"sink.dispatchers[0].{key}" in str(caught.value)


def test_without_targets_there_are_no_routes() -> None:
    assert not config("matcher = ['a.b'], topic = 'x'").table_routes()
