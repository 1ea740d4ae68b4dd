"""S3 by conditional requests, which pyarrow's S3 does not know: with the options of a pyarrow file system, and its credentials.

botocore looks for credentials in the same places as pyarrow does where the URL gives none: the environment, ~/.aws, a web identity, the
machine's role.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.fs

from tidemill.changelog.storage import outcomes
from tidemill.changelog.storage.base import Token
from tidemill.changelog.storage.conditional import Outcome
from tidemill.errors import LogError, LogUnavailable

LARGEST_PUT = 5 << 30
"""A larger file is not put in one request."""

CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 10.0
"""How long a connection may take, and how long it may be silent. What asks again after that waits in between; see `patience`."""
REQUESTS = 3
"""So often a request is made before it counts as failed: pyarrow's own way would be to make it 31 times, of 3 s each."""
PUTS = 2
"""So often a file is sent whose PUT has no answer, before whoever asked for it has to ask again."""

_REFUSED = {404, 412}  # 404: a version is asked for, and there is none
_UNCONDITIONAL = {"NotImplemented", "InvalidArgument", "InvalidRequest"}
_LASTING = (
    *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "ConfigParseError", "InvalidConfigError", "NoRegionError"),
    *("InvalidRegionError", "ParamValidationError", "UnauthorizedSSOTokenError", "SSOTokenLoadError", "UnknownEndpointError"),
)
"""Errors of botocore's that stay until a person changes something."""


class S3Objects:
    """See `conditional.Objects`."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{name}" if self._prefix else name}

    def get(self, name: str) -> tuple[bytes, Token] | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self._client.get_object(**self._key(name))
            return found["Body"].read(), str(found["ETag"])
        except ClientError as error:
            if _status(error) == 404 and _code(error) != "NoSuchBucket":
                return None
            raise self._failure(name, error) from None
        except (BotoCoreError, OSError) as error:  # OSError: the connection ended in the middle of the body
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
        except (BotoCoreError, OSError) as error:
            if _outcome(error) is outcomes.Outcome.AWAY:  # the connection, not the store
                return Outcome.UNKNOWN
            raise self._failure(name, error) from None

    def _url(self, name: str) -> str:
        return f"s3://{self._bucket}/{self._key(name)['Key']}"

    def _failure(self, name: str, error: Exception) -> LogError:
        return outcomes.error_of(_outcome(error), self._url(name), error)


def _outcome(error: Exception) -> outcomes.Outcome:
    """What an error of botocore's means: that of a service by its name, others by their class."""
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return outcomes.of_aws(_code(error), _status(error))
    if isinstance(error, tuple(getattr(exceptions, name) for name in _LASTING)):
        return outcomes.Outcome.REFUSED
    return outcomes.Outcome.AWAY  # no connection, no answer in time, no answer to the question for credentials


def _status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def with_patience(filesystem: Any) -> Any:
    """The same file system with time-outs and repetitions that fit a storage which is asked again; another one than S3 as it is."""
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
    """The place of a pyarrow file system; None where that is not S3, or one by a role or a proxy of its own."""
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
    """A botocore client with the options that pyarrow's file system would give to its copy in another process. Threads may share it,
    processes that were forked may not."""
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
        # Checksums that came later than conditional requests: other stores may not know them.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        ignore_configured_endpoint_urls=True,  # pyarrow goes where its options say
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard", "max_attempts": REQUESTS},  # the answer to the last is looked into, and then it is tried again
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
