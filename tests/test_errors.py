from __future__ import annotations

import errno

import pytest

from tidemill import errors
from tidemill.errors import EXIT_FATAL, EXIT_RETRY, ConfigError, SinkUnavailable, SystemFailed, TidemillError, exit_code, redact


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
        ("azblob://c/p?account-name=a&account-key=x", "azblob://c/p?account-name=a&account-key=xxxxx"),
        ("https://a/c?sv=2&sig=a%2Bb%3D&se=3", "https://a/c?sv=2&sig=xxxxx&se=3"),
        ("gcs://b?credentials-file=f&x=%3Fsig%3Dy%26z%3D1", "gcs://b?credentials-file=xxxxx&x=%3Fsig%3Dxxxxx%26z%3D1"),
        ("AccountName=a&AccountKey=b==", "AccountName=a&AccountKey=xxxxx"),
        ("csv-output-handle-key=true&a-key=false&key=/a.pem&x=1", "csv-output-handle-key=true&a-key=false&key=/a.pem&x=1"),
        ("maps://h?key=abc&x=1", "maps://h?key=xxxxx&x=1"),
        ("table a.b key=7 start_key=748f primary-key=1", "table a.b key=7 start_key=748f primary-key=1"),
        ("https://abc@h/p", "https://xxxxx@h/p"),
        ("https://abc:@h/p", "https://xxxxx@h/p"),
        ("abfss://box@account.net/p", "abfss://box@account.net/p"),
        ("schema-registry=u:abc@r:8081&x=1", "schema-registry=u:xxxxx@r:8081&x=1"),
        ("dsn root:a/b@tcp(h:4000)/", "dsn root:xxxxx@tcp(h:4000)/"),
        ("schema-registry=u%3Aabc%40r%3A8081&x=1", "schema-registry=u%3Axxxxx%40r%3A8081&x=1"),
        ("x=http%3A%2F%2Fabc%40h&y=1", "x=http%3A%2F%2Fxxxxx%40h&y=1"),
        ("x=http%3A//u%3Aabc%40h&y=1", "x=http%3A//u%3Axxxxx%40h&y=1"),
        ("x=http%253A%252F%252Fu%253Aabc%2540h&y=1", "x=http%253A%252F%252Fu%253Axxxxx%2540h&y=1"),
        (
            "x=s3%253A%252F%252Fb%253Fsecret-access-key%253Da%25252Fb%2526y%253D1&z=1",
            "x=s3%253A%252F%252Fb%253Fsecret-access-key%253Dxxxxx%2526y%253D1&z=1",
        ),
        ("Authorization: Basic dTpw\nHost: h", "Authorization: Basic xxxxx\nHost: h"),
        ("proxy-authorization: abc def", "proxy-authorization: xxxxx"),
        ("{'Authorization': 'Bearer abc', 'Host': 'h'}", "{'Authorization': 'Bearer xxxxx', 'Host': 'h'}"),
        ("(b'Authorization', b'a'), {b'x-api-key': b'abc'}", "(b'Authorization', b'a'), {b'x-api-key': b'xxxxx'}"),
        ('{"sasl-password": "a\\"b, c", "x": 1}', '{"sasl-password": "xxxxx", "x": 1}'),
        ('"{\\"sasl-password\\": \\"a\\\\\\"b\\", \\"x\\": 1}"', '"{\\"sasl-password\\": \\"xxxxx\\", \\"x\\": 1}"'),
        ('{"secret": 5, "token": null, "password": ""}', '{"secret": xxxxx, "token": null, "password": ""}'),
        ('sasl-password = "abc" # so\nx = 1', 'sasl-password = "xxxxx" # so\nx = 1'),
        ("basic-password='abc'", "basic-password='xxxxx'"),
        ("sasl-password: expected a value", "sasl-password: expected a value"),
        ("kafka://h/t?sasl-p%61ssword=abc&x=1", "kafka://h/t?sasl-p%61ssword=xxxxx&x=1"),
        ("kafka://h/t?%73asl%2dpasswor%2564=abc&x=1", "kafka://h/t?%73asl%2dpasswor%2564=xxxxx&x=1"),
        ("x=s3%3A%2F%2Fb%3Fsecret-access-%6Bey%3dab%26y%3d1&z=1", "x=s3%3A%2F%2Fb%3Fsecret-access-%6Bey%3dxxxxx%26y%3d1&z=1"),
        ("kafka://h/t?sasl-password+=abc&a%20token%20=b", "kafka://h/t?sasl-password+=xxxxx&a%20token%20=xxxxx"),
        ("//user:p@ss@host/t", "//user:xxxxx@host/t"),
        ("sink URI //user:a b/c@host:9092/t: it has to", "sink URI //user:xxxxx@host:9092/t: it has to"),
        ("//:abc@host", "//:xxxxx@host"),
        ("//abc@host", "//xxxxx@host"),
        ("x=//u:abc@h&y=%2F%2Fu%3Aa%40b%40h", "x=//u:xxxxx@h&y=%2F%2Fu%3Axxxxx%40h"),
        ("user:p@ss@host", "user:xxxxx@host"),
        ("//host:9092/t and //tmp/a b", "//host:9092/t and //tmp/a b"),
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


@pytest.mark.parametrize(
    "piece",
    [
        *("x", "a-", "token", "token=", "a=", "://a:", "http://h:80/", "://[", "://a@", "@", "a:b", "=a:", "%", "%25", "25", "%3A", "%40"),
        *(
            "%3A%2F%2F",
            "%3A%2F%2Fu%3A",
            "=a%3A",
            "token%3D",
            "%3Dtoken",
            '"',
            "\\",
            '\\"',
            'token="',
            'token=\\"',
            '"token": ',
            "secret ",
            "\n",
        ),
        *("%61", "%2561", "&%61", "//", "//a:", " //a", "=//", "a:b@ ", "+", "a+"),
        *("x-token: ", "?", "?a", "Authorization: basic ", "a:b@", "://u:p@", "A", "aA", "key-", "key", "_key=", ": ", " ", "'"),
    ],
)
def test_a_long_text_is_looked_at_once(piece: str) -> None:
    """Every line of the log passes here: what is one long word must not cost its square, which would be minutes."""
    once = redact(piece * ((1 << 16) // len(piece)))
    assert redact(once) == once


@pytest.mark.parametrize(
    ("number", "code"),
    [
        *((lasting, EXIT_FATAL) for lasting in (errno.EACCES, errno.EROFS, errno.ENOTDIR)),
        *((passing, EXIT_RETRY) for passing in (errno.EIO, errno.ENOSPC, errno.ECONNREFUSED)),
    ],
)
def test_what_the_system_refuses_stays_or_may_pass(number: int, code: int) -> None:
    error = SystemFailed.of(OSError(number, "no", "/log"))
    assert "/log" in str(error)
    assert exit_code(error, supervised=True) == code
    assert exit_code(error, supervised=False) == 1
