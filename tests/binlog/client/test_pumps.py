"""Which Pump takes a binlog."""

from __future__ import annotations

from collections import Counter

from tidemill.binlog.client.options import ClientOptions, Strategy
from tidemill.binlog.client.pumps import Pumps
from tidemill.binlog.nodes import Node, NodeState


def node(name: str, state: NodeState = NodeState.ONLINE, labels: dict[str, str] | None = None, score: int = 0) -> Node:
    return Node(name, f"{name}:8250", state, labels=labels, score=score)


def pumps(*nodes: Node, **options: object) -> Pumps:
    found = Pumps(ClientOptions(**options))  # type: ignore[arg-type]
    found.look({one.node_id: one for one in nodes})
    return found


def test_only_online_pumps_with_all_labels_are_used() -> None:
    found = pumps(
        node("a", labels={"zone": "1", "disk": "ssd"}),
        node("b", labels={"zone": "2"}),
        node("c"),
        node("d", NodeState.PAUSED, {"zone": "1"}),
        labels={"zone": "1"},
    )
    assert found.online == ("a",)


def test_range_takes_turns_and_begins_again_when_the_list_changes() -> None:
    found = pumps(node("a"), node("b"), node("c"))
    assert [found.choose(7, 0) for _ in range(4)] == ["a", "b", "c", "a"]
    found.look({name: node(name) for name in ("a", "b")})
    assert [found.choose(7, 0) for _ in range(3)] == ["a", "b", "a"]


def test_hash_goes_by_start_ts_and_moves_on_with_each_try() -> None:
    found = pumps(node("a"), node("b"), node("c"), strategy=Strategy.HASH)
    assert [found.choose(30, retry) for retry in range(4)] == ["a", "b", "c", "a"]
    assert [found.choose(ts, 0) for ts in (30, 31, 32)] == ["a", "b", "c"]


def _shares(found: Pumps, seconds: dict[str, float], count: int = 1000) -> Counter[str]:
    shares: Counter[str] = Counter()
    for number in range(count):
        chosen = found.choose(number, 0)
        assert chosen is not None
        found.begun(chosen)
        found.ended(chosen, 0.0, seconds[chosen], good=True)
        shares[chosen] += 1
    return shares


def test_score_gives_a_slow_pump_less() -> None:
    shares = _shares(pumps(node("quick"), node("slow"), strategy=Strategy.SCORE), {"quick": 0.002, "slow": 0.020})
    assert 5 < shares["quick"] / shares["slow"] < 15
    assert shares["slow"] > 50  # it is still asked, and would be found quick again


def test_score_counts_what_pumps_report_and_what_they_have_not_answered() -> None:
    shares = _shares(pumps(node("a", score=3), node("b", score=1), strategy=Strategy.SCORE), {"a": 0.01, "b": 0.01})
    assert 2.5 < shares["a"] / shares["b"] < 3.5
    found = pumps(node("a"), node("b"), strategy=Strategy.SCORE)
    for _ in range(9):
        found.begun("a")
    assert Counter(found.choose(n, 0) for n in range(110)) == {"a": 10, "b": 100}


def test_after_too_many_errors_a_pump_is_passed_over_and_probed() -> None:
    found = pumps(node("a"), node("b"))
    changed = [found.ended("a", 5.0, 0.1, good=False) for _ in range(12)]
    assert changed == [False] * 10 + [True, False]
    assert (found.available, found.online) == (("b",), ("a", "b"))
    assert {found.choose(7, 0) for _ in range(4)} == {"b"}
    assert found.to_probe(20.0) == []
    assert found.to_probe(35.0) == ["a"]
    assert found.to_probe(50.0) == []
    assert not found.ended("a", 50.0, 0.1, good=False)
    assert found.to_probe(65.0) == ["a"]
    assert found.ended("a", 65.0, 0.1, good=True)
    assert found.available == ("a", "b")


def test_an_answer_forgives_earlier_errors() -> None:
    found = pumps(node("a"))
    for _ in range(3):
        for _ in range(10):
            found.ended("a", 0.0, 0.1, good=False)
        found.ended("a", 0.0, 0.1, good=True)
    assert found.available == ("a",)


def test_where_all_are_passed_over_any_may_do() -> None:
    found = pumps(node("a"))
    for _ in range(20):
        found.ended("a", 0.0, 0.1, good=False)
    assert (found.available, found.choose(7, 0)) == ((), "a")


def test_a_pump_that_comes_back_online_begins_without_errors() -> None:
    found = pumps(node("a"), node("b"))
    for _ in range(20):
        found.ended("a", 0.0, 0.1, good=False)
    found.look({"b": node("b"), "a": node("a", NodeState.PAUSED)})
    assert (found.online, found.host("a")) == (("b",), None)
    found.look({"b": node("b"), "a": node("a")})
    assert found.available == ("a", "b")
