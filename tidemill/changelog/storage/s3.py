"""S3 by conditional requests, which pyarrow's S3 does not offer. It uses the options and credentials of a pyarrow file system.

If the URL has no credentials, botocore looks for them in the same places as pyarrow: the environment, ~/.aws, a web identity, the machine's
role.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.fs

from tidemill.changelog.storage import outcomes
from tidemill.changelog.storage.base import Token
from tidemill.changelog.storage.bounded import read_whole
from tidemill.changelog.storage.conditional import Outcome
from tidemill.errors import LogError, LogUnavailable
from tidemill.extras import extra

LARGEST_PUT = 5 << 30
"""The largest file that one request may put."""

CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 10.0
"""Seconds until a connect times out, and until a silent connection does. Callers wait longer between their retries; see `retry`."""
REQUESTS = 3
"""How often a request is made before it counts as failed. pyarrow's default is 31 times, of 3 s each."""
PUTS = 2
"""How often a file is sent whose PUT gets no answer, before the caller has to ask again."""

_UNREADABLE = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""What botocore raises, without a word of its own, for answers that it does not expect: a Content-Length that is no number, no ETag,
redirects that never end."""

_REFUSED = {404, 412}  # 404: a version was expected, and there is no object
_UNCONDITIONAL = {"NotImplemented", "InvalidArgument", "InvalidRequest"}
_LASTING = (
    *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "ConfigParseError", "InvalidConfigError", "NoRegionError"),
    *("InvalidRegionError", "ParamValidationError", "UnauthorizedSSOTokenError", "SSOTokenLoadError", "UnknownEndpointError"),
)
"""Errors of botocore that stay until somebody changes something."""


class S3Objects:
    """Conditional requests to S3, see `conditional.Objects`."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{name}" if self._prefix else name}

    def get(self, name: str) -> tuple[bytes, Token] | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self._client.get_object(**self._key(name))
            return read_whole(found["Body"].read), str(found["ETag"])
        except ClientError as error:
            if _status(error) == 404 and _code(error) != "NoSuchBucket":
                return None
            raise self._failure(name, error) from None
        except (BotoCoreError, OSError, *_UNREADABLE) as error:  # OSError: the connection ended in the middle of the body
            raise self._failure(name, error) from None

    def put(self, name: str, data: bytes, expected: Token | None) -> Token | Outcome:
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        return self._put(name, data, condition)

    def create(self, name: str, path: str) -> bool:
        if Path(path).stat().st_size > LARGEST_PUT:
            return False
        for _ in range(PUTS):
            with open(path, "rb") as body:
                outcome = self._put(name, body, {"IfNoneMatch": "*"})
            if outcome is Outcome.UNCONDITIONAL:
                return False
            if outcome is not Outcome.UNKNOWN:
                return True
        raise LogUnavailable(f"{self._url(name)}: the object store does not say whether it was written")

    def _put(self, name: str, body: Any, condition: dict[str, str]) -> Token | Outcome:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return str(self._client.put_object(**self._key(name), Body=body, **condition)["ETag"])
        except ClientError as error:
            status, code = _status(error), _code(error)
            if code in _UNCONDITIONAL or status == 501:
                return Outcome.UNCONDITIONAL
            if status in _REFUSED and code != "NoSuchBucket":
                return Outcome.REFUSED
            if outcomes.of_aws(code, status) is outcomes.Outcome.AWAY:
                return Outcome.UNKNOWN
            raise self._failure(name, error) from None
        except (BotoCoreError, OSError, *_UNREADABLE) as error:
            if _outcome(error) is outcomes.Outcome.AWAY:  # the connection failed, not the store
                return Outcome.UNKNOWN
            raise self._failure(name, error) from None

    def _url(self, name: str) -> str:
        return f"s3://{self._bucket}/{self._key(name)['Key']}"

    def _failure(self, name: str, error: Exception) -> LogError:
        return outcomes.error_of(_outcome(error), self._url(name), error)


def _outcome(error: Exception) -> outcomes.Outcome:
    """Classify an error of botocore: a service's error by its name, others by their class."""
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return outcomes.of_aws(_code(error), _status(error))
    if isinstance(error, tuple(getattr(exceptions, name) for name in _LASTING)):
        return outcomes.Outcome.REFUSED
    if isinstance(error, OSError):
        return outcomes.outcome_of(error)
    return outcomes.Outcome.AWAY  # no connection, no answer in time, no answer to the question for credentials


def _status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def filesystem(endpoint: str, given: Mapping[str, str], *, by_path: bool, timeout_s: float = 0.0) -> Any:
    """Return pyarrow's file system of an endpoint (empty: AWS), which is https unless it says otherwise.

    `given`: keys, region and role, of which empty ones are left out. `by_path`: a bucket is part of the path, not of the host. `timeout_s`:
    0 is what pyarrow takes.
    """
    scheme, mark, host = endpoint.partition("://")
    timeouts = {"connect_timeout": timeout_s, "request_timeout": timeout_s} if timeout_s else {}
    return pyarrow.fs.S3FileSystem(
        **{name: value for name, value in given.items() if value},
        endpoint_override=(host if mark else endpoint) or None,
        scheme=scheme if mark else "https",
        force_virtual_addressing=not by_path,
        **timeouts,
    )


def with_retries(filesystem: Any) -> Any:
    """Return the file system with timeouts and few retries of its own, because callers retry. Other file systems than S3 are returned
    unchanged."""
    if not isinstance(filesystem, pyarrow.fs.S3FileSystem):
        return filesystem
    options = dict(filesystem.__reduce__()[1][0])
    for name, default in (("connect_timeout", CONNECT_TIMEOUT_S), ("request_timeout", READ_TIMEOUT_S)):
        if options[name] < 0:  # not given
            options[name] = default
    if not options["proxy_options"]["host"]:
        options["proxy_options"] = None
    given = {name: value for name, value in options.items() if value not in ("", None)}
    return pyarrow.fs.S3FileSystem(**given, retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=REQUESTS))


def objects_of(filesystem: Any, root: str) -> S3Objects | None:
    """Return conditional requests for a pyarrow file system; None if it is not S3, or uses a role or proxy of its own."""
    if not isinstance(filesystem, pyarrow.fs.S3FileSystem):
        return None
    options = filesystem.__reduce__()[1][0]
    if options["role_arn"] or options["proxy_options"]["host"]:
        return None
    bucket, _, prefix = root.partition("/")
    return S3Objects(_client(os.getpid(), **{name: options[name] for name in _OPTIONS}), bucket, prefix)


_OPTIONS = (
    "access_key",
    "secret_key",
    "session_token",
    "anonymous",
    "region",
    "scheme",
    "endpoint_override",
    "force_virtual_addressing",
    "tls_ca_file_path",
)


@lru_cache(maxsize=16)
def _client(pid: int, **options: Any) -> Any:
    """Return a botocore client with the options that the pyarrow file system passes to its copy in another process. Threads may share it,
    forked processes may not."""
    with extra("s3"):
        import botocore
        import botocore.session
        from botocore.config import Config

    endpoint = options["endpoint_override"] or None
    if endpoint and "://" not in endpoint:
        endpoint = f"{options['scheme']}://{endpoint}"
    by_path = endpoint is not None and not options["force_virtual_addressing"]
    config = Config(
        signature_version=botocore.UNSIGNED if options["anonymous"] else None,
        s3={"addressing_style": "path" if by_path else "virtual" if options["force_virtual_addressing"] else "auto"},
        # These checksums are newer than conditional requests: other stores may not know them.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        ignore_configured_endpoint_urls=True,  # pyarrow uses only its own options
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard", "max_attempts": REQUESTS},  # the answer to the last is examined, and then it is tried again
    )
    return botocore.session.Session().create_client(
        "s3",
        region_name=options["region"] or None,
        endpoint_url=endpoint,
        use_ssl=options["scheme"] != "http",
        verify=options["tls_ca_file_path"] or None,
        aws_access_key_id=options["access_key"] or None,
        aws_secret_access_key=options["secret_key"] or None,
        aws_session_token=options["session_token"] or None,
        config=config,
    )
