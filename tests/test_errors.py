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
        ("kafka://h/t?sasl-password=a b c&protocol=x", "kafka://h/t?sasl-password=xxxxx&protocol=x"),
        ("kafka://h/t?protocol=x&sasl-password=a b c", "kafka://h/t?protocol=x&sasl-password=xxxxx"),
        ("sink URI kafka://h/t?sasl-password=a b: no protocol", "sink URI kafka://h/t?sasl-password=xxxxx: no protocol"),
        ("sasl-password=xxxxx is not taken", "sasl-password=xxxxx is not taken"),
        ("mysql://root:a?b c@h:3306/?x=1", "mysql://root:xxxxx@h:3306/?x=1"),
        ("mysql://root:a?b=c@h:3306/", "mysql://root:xxxxx@h:3306/"),
        ("mysql://root:pa ss w@rd@h:3306/: away", "mysql://root:xxxxx@h:3306/: away"),
        ("mysql://u:12/3?4@h/", "mysql://u:xxxxx@h/"),
        ("from a://u:p@h to b://v:q@k", "from a://u:xxxxx@h to b://v:xxxxx@k"),
        ("a://u:x://y@h", "a://u:xxxxx@h"),
        ("http://127.0.0.1:8081/a?b=c asks admin@example", "http://127.0.0.1:8081/a?b=c asks admin@example"),
        ("kafka://[::1]:9092,h:9093/t?x=@", "kafka://[::1]:9092,h:9093/t?x=@"),
        ("schema-registry=http%3A%2F%2Fu%3Ap%40ss%40h%3A8081&x=1", "schema-registry=http%3A%2F%2Fu%3Axxxxx%40h%3A8081&x=1"),
        ("schema-registry=http%3A%2F%2Fh%3A8081&x=1", "schema-registry=http%3A%2F%2Fh%3A8081&x=1"),
        (
            "claim-check-storage-uri=s3%3A%2F%2Fb%2Fp%3Faccess-key%3DAB%26secret-access-key%3DCD%26region%3Dx&y=1",
            "claim-check-storage-uri=s3%3A%2F%2Fb%2Fp%3Faccess-key%3Dxxxxx%26secret-access-key%3Dxxxxx%26region%3Dx&y=1",
        ),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


def test_codes_are_unique() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, TidemillError)]
    codes = [c.code for c in classes]
    assert len(codes) == len(set(codes))


def test_a_supervisor_is_told_whether_a_restart_helps() -> None:
    assert exit_code(ConfigError("x"), supervised=False) == 1
    assert exit_code(ConfigError("x"), supervised=True) == EXIT_FATAL
    assert exit_code(SinkUnavailable("x"), supervised=True) == EXIT_RETRY


def test_a_long_text_is_looked_at_once() -> None:
    """Every line of the log passes here: what is one long word must not cost its square."""
    assert redact("x" * (1 << 16)) == "x" * (1 << 16)
    assert redact("a-" * (1 << 15)) == "a-" * (1 << 15)
