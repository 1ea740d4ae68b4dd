"""Why Spark did not start, in one line."""

from __future__ import annotations

from pathlib import Path

from tidemill.spark.start import cause_of_start

GONE = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."


def test_what_java_printed_this_time_is_told(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("Error: of the start before\n")
    before = log.stat().st_size
    assert cause_of_start(GONE, log, before) == "Java ended without a word"
    with open(log, "a") as file:
        file.write("WARNING: Using incubator modules\nError: Could not find or load main class\n\tat x\n")
    assert cause_of_start(GONE, log, before) == "Error: Could not find or load main class"
    assert cause_of_start(GONE, tmp_path / "none", 0) == "Java ended without a word"


def test_the_exception_is_told(tmp_path: Path) -> None:
    text = "An error occurred while calling None.X.\n: java.lang.IllegalArgumentException: spark.driver.port should be int\n\tat y"
    assert cause_of_start(text, tmp_path / "x", 0) == "java.lang.IllegalArgumentException: spark.driver.port should be int"
    assert cause_of_start("", tmp_path / "x", 0) == "no reason given"
