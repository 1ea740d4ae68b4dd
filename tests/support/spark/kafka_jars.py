"""The jars of Spark's Kafka source: fetched once with Maven into a cache folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

POM = Path(__file__).with_name("kafka_jars_pom.xml")
CACHE = Path(__file__).parents[3] / ".tidemill" / "spark-kafka"


def spark_kafka_jars() -> str:
    """What `spark.jars` takes."""
    folder = CACHE / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    if not folder.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.fail("Spark's Kafka source needs Maven (mvn) once, to fetch its jars")
        arriving = CACHE / "arriving"
        shutil.rmtree(arriving, ignore_errors=True)
        command = [
            maven,
            "-B",
            "-q",
            "-f",
            str(POM),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={arriving}",
        ]
        subprocess.run(command, check=True, capture_output=True)
        arriving.rename(folder)
    return ",".join(map(str, sorted(folder.glob("*.jar"))))
