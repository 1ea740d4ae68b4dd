"""The capture's reading of schemas accepts everything that the playground writes, and decodes its rows to what SELECT shows."""

from __future__ import annotations

import pytest

from tests.support.schema.playground_history import history_of, replayed
from tidemill.playground.server import Playground
from tidemill.playground.store.truth import tables_at
from tidemill.playground.workload.mixed import Options
from tidemill.playground.workload.names import make_workload


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough("another seed"))])
def test_a_workload_with_ddl_is_read_back(seed: int) -> None:
    playground = Playground(seed)
    start_ts = playground.cluster.oracle.next()
    workload = make_workload("mixed", playground.database, seed, Options(ddl_every=8, lock_every=0))
    workload.prepare()
    moments = []
    while workload.progress.transactions < 250:
        workload.act()
        if workload.progress.transactions % 25 == 0:
            workload.settle()
            moments.append(playground.cluster.oracle.next())
    workload.settle()
    history, now = history_of(playground, start_ts)
    assert workload.progress.ddls > 8
    assert len(history.ddl_events(start_ts, now)) >= workload.progress.ddls
    for ts in (*moments, now):
        truth = {name: table.rows for name, table in tables_at(playground.cluster.mvcc, ts).items()}
        assert replayed(playground, history, ts) == truth


def test_rows_decode_to_what_select_shows() -> None:
    playground = Playground()
    playground.execute("""create database d; use d; create table t (id bigint unsigned primary key, n varchar(20) default 'dd',
        m decimal(12,4), at datetime(3), e enum('x','y'), s set('p','q'), j json, b varbinary(8), y year, ti time(2), bi bit(9),
        f float)""")
    values = """18446744073709551615, 'Grüße', -12.5, '2021-02-03 04:05:06.789', 'y', 'p,q', '{"a": [1, 2.5]}', x'00ff', 1999,
        '-11:22:33.44', 300, 1.5"""
    playground.execute(f"insert into t values ({values}), (1{', null' * 11})")
    (table,) = playground.tables_at().values()
    full, empty = sorted(table.rows, key=lambda row: row["n"] is None)
    assert full == {
        "id": 18446744073709551615, "n": "Grüße".encode(), "m": "-12.5000", "at": "2021-02-03 04:05:06.789", "e": 2, "s": 3,
        "j": '{"a": [1, 2.5]}', "b": b"\0\xff", "y": 1999, "ti": "-11:22:33.44", "bi": 300, "f": 1.5,
    }  # fmt: skip
    assert {k: v for k, v in empty.items() if v is not None} == {"id": 1}
