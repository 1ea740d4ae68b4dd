"""The example of a view: each line it prints is the query over whole transactions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from examples import order_totals
from tests.support.spark.sessions import ROOT, spark_session

pytestmark = [pytest.mark.spark, pytest.mark.slow]
session = spark_session()


def _are_those_of_whole_transactions(said: str) -> None:
    first, second, third = said.splitlines()
    assert "'id': 1, 'customer': 'Ada', 'total': Decimal('10.00'), 'positions': 1" in first
    assert "'id': 2, 'customer': 'Grace', 'total': Decimal('10.00'), 'positions': 1" in second
    assert "'Ada'" not in second
    assert "'total': Decimal('11.00'), 'positions': 2" in third


@pytest.mark.usefixtures("session")  # which analyses the view's query
def test_totals(capsys: pytest.CaptureFixture[str]) -> None:
    order_totals.main()
    _are_those_of_whole_transactions(capsys.readouterr().out)


@pytest.mark.thorough("test_totals has them without another Spark; that one is started: tests/views/test_spark.py")
def test_totals_of_a_program() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, str(ROOT / "examples/order_totals.py")]
    _are_those_of_whole_transactions(subprocess.run(argv, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)
