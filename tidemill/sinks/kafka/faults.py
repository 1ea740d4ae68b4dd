"""Errors of brokers and client as sink errors, retryable or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.errors import MessageRefused, SinkError, SinkUnavailable, redact

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

AUTHENTICATION = -169
"""The client's own code for wrong credentials. The client itself keeps trying until messages time out."""

_LASTING = {
    AUTHENTICATION: "_AUTHENTICATION", -186: "_INVALID_ARG", -165: "_UNSUPPORTED_FEATURE",
    2: "INVALID_MSG", 10: "MSG_SIZE_TOO_LARGE", 17: "TOPIC_EXCEPTION", 18: "RECORD_LIST_TOO_LARGE", 21: "INVALID_REQUIRED_ACKS",
    29: "TOPIC_AUTHORIZATION_FAILED", 31: "CLUSTER_AUTHORIZATION_FAILED", 33: "UNSUPPORTED_SASL_MECHANISM", 34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION", 37: "INVALID_PARTITIONS", 38: "INVALID_REPLICATION_FACTOR", 40: "INVALID_CONFIG", 42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT", 44: "POLICY_VIOLATION", 53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    58: "SASL_AUTHENTICATION_FAILED", 76: "UNSUPPORTED_COMPRESSION_TYPE", 87: "INVALID_RECORD",
}  # fmt: skip
"""Errors that trying again cannot cure. A missing topic is not among them, because the driver creates it or says why it cannot."""


def lasting(code: int) -> bool:
    """Return whether an error of this code stays until somebody changes a setting."""
    return code in _LASTING


_TOO_LARGE = {10, 18}
_NO_ANSWER = {-185: "_TIMED_OUT", -187: "_ALL_BROKERS_DOWN", -195: "_TRANSPORT", -193: "_RESOLVE", -192: "_MSG_TIMED_OUT"}
_AWAY = (
    "Do the brokers run, and does the way from this machine lead to them: names, ports, firewall? Clients go to the addresses that brokers "
    "advertise (advertised.listeners), not only to those in the sink URI."
)


def sink_error(code: int, message: str) -> SinkError:
    """Return the error for a code, retryable or not."""
    if code in _TOO_LARGE:
        return MessageRefused(redact(message))
    return SinkError(redact(message)) if lasting(code) else SinkUnavailable(redact(message), hint=_AWAY if code in _NO_ANSWER else "")


def from_kafka(error: KafkaError, doing: str) -> SinkError:
    """Return the sink error for a KafkaError, with the error's own text."""
    return sink_error(error.code(), f"{doing}: {error.name()}: {error.str()}")
