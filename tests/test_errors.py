from __future__ import annotations

import pytest

from tidemill import errors
from tidemill.errors import EXIT_FATAL, EXIT_RETRY, ConfigError, SinkUnavailable, TidemillError, exit_code, redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kafka://u:p@ss@h:9092/t", "kafka://u:xxxxx@h:9092/t"),
        ("kafka://h/t?sasl-password=abc&protocol=open-protocol", "kafka://h/t?sasl-password=xxxxx&protocol=open-protocol"),
        ("s3://b/p?secret-access-key=x&access-key=y", "s3://b/p?secret-access-key=xxxxx&access-key=xxxxx"),
        ("s3://KEY:a/b+c@bucket/p", "s3://KEY:xxxxx@bucket/p"),
        ("kafka://h/t?sasl-passwd=abc", "kafka://h/t?sasl-passwd=xxxxx"),
        ("http://127.0.0.1:8081/a", "http://127.0.0.1:8081/a"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_codes_are_unique() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, TidemillError)]
    codes = [c.code for c in classes]
    assert len(codes) == len(set(codes))


def test_a_supervisor_is_told_whether_a_restart_helps() -> None:
    assert exit_code(ConfigError("x"), supervised=False) == 1
    assert exit_code(ConfigError("x"), supervised=True) == EXIT_FATAL
    assert exit_code(SinkUnavailable("x"), supervised=True) == EXIT_RETRY
