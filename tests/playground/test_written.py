"""What a playground counts of its own writes is what a changefeed makes of them."""

from __future__ import annotations

from tidemill.playground.server import PlaygroundThread


def test_writes_are_counted_by_what_a_changefeed_makes_of_them() -> None:
    with PlaygroundThread() as playground:

        def written() -> dict[str, int]:
            found = playground.run(_asked(playground))
            assert found.pop("ok")
            assert found["keys"] == sum(count for name, count in found.items() if name != "keys")
            return found

        playground.execute("CREATE DATABASE d; CREATE TABLE d.k (id INT PRIMARY KEY, u INT, UNIQUE KEY (u)); CREATE TABLE d.n (v INT)")
        before = written()
        assert (before["row_changes"], before["without_key"]) == (0, 0)
        playground.execute("INSERT INTO d.k VALUES (1, 1), (2, 2); UPDATE d.k SET u = 3 WHERE id = 1; DELETE FROM d.k WHERE id = 2")
        playground.execute("INSERT INTO d.n VALUES (1), (2), (3)")
        found = written()
        assert (found["row_changes"], found["without_key"]) == (4, 3)
        assert found["others"] > before["others"]  # entries of the index
        playground.execute("DROP TABLE d.k; DROP TABLE d.n")
        dropped = written()
        assert (dropped["row_changes"], dropped["without_key"]) == (4, 3)


async def _asked(playground: PlaygroundThread) -> dict[str, int]:
    answer: dict[str, int] = playground.playground.control.run({"command": "written"})
    return answer
