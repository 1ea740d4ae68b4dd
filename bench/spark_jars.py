"""The jars that some benchmarks need beside Spark's own. Maven fetches them once."""

from __future__ import annotations

from pathlib import Path

from tidemill.playground.programs.maven import installed

POM = Path(__file__).with_suffix(".xml")
GOAL = ("dependency:copy-dependencies", "-DincludeScope=runtime")


def spark_jars() -> str:
    """What `spark.jars` takes."""
    folder = installed("bench-jars", POM, "TIDEMILL_BENCH_JARS", GOAL, "*.jar")
    return ",".join(map(str, sorted(folder.glob("*.jar"))))
