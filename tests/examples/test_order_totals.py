"""The example of a view: each line it prints is the query over whole transactions."""

from __future__ import annotations

import pytest

from examples import order_totals
from tests.support.spark.sessions import spark_session

session = spark_session()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("session")  # its view is analysed by the Spark that runs
def test_totals_are_those_of_whole_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    order_totals.main()
    first, second, third = capsys.readouterr().out.splitlines()
    assert "'id': 1, 'customer': 'Ada', 'total': Decimal('10.00'), 'positions': 1" in first
    assert "'id': 2, 'customer': 'Grace', 'total': Decimal('10.00'), 'positions': 1" in second
    assert "'Ada'" not in second
    assert "'total': Decimal('11.00'), 'positions': 2" in third
