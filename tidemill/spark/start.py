"""Why Spark did not start, in one line: from the error that Python got, or if that says nothing, from what Java printed."""

from __future__ import annotations

from pathlib import Path

_TAIL_BYTES = 64 * 1024
_NOTHING = "JAVA_GATEWAY_EXITED"
_TELLING = ("Exception", "Error:", "Error ", "error:")


def cause_of_start(text: str, log_file: Path, before: int) -> str:
    """The most useful line of an error's text, or of what Java printed into `log_file` after its first `before` bytes."""
    if _NOTHING in text:
        return _said_by_java(log_file, before)
    lines = text.splitlines() or ["no reason given"]
    return next((line for line in lines if "Exception: " in line), lines[0]).strip(": ")


def _said_by_java(log_file: Path, before: int) -> str:
    try:
        with open(log_file, "rb") as file:
            file.seek(max(before, log_file.stat().st_size - _TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    telling = [line for line in lines if any(sign in line for sign in _TELLING)]
    return next(iter(telling or lines), "Java ended without a word")
