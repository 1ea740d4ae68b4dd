"""librdkafka through ctypes, called without the GIL. The library is that of the confluent-kafka wheel.

A `NativeProducer` is one rd_kafka_t with counters that compiled callbacks write (kernels/deliver). Policy is in `task.py`.
"""

from __future__ import annotations

import ctypes as c
import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidemill.errors import SinkError
from tidemill.extras import extra
from tidemill.kernels.deliver import kernels

PRODUCER = 0
COPY, WITH_PARTITION = 0x2, 0x8
PURGE_ALL = 0x1 | 0x2  # queued and in flight
QUEUE_FULL = -184

_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "rd_kafka_conf_new": (c.c_void_p, []),
    "rd_kafka_conf_set": (c.c_int, [c.c_void_p, c.c_char_p, c.c_char_p, c.c_char_p, c.c_size_t]),
    "rd_kafka_conf_destroy": (None, [c.c_void_p]),
    "rd_kafka_conf_set_opaque": (None, [c.c_void_p, c.c_void_p]),
    "rd_kafka_conf_set_dr_msg_cb": (None, [c.c_void_p, c.c_void_p]),
    "rd_kafka_conf_set_error_cb": (None, [c.c_void_p, c.c_void_p]),
    "rd_kafka_conf_set_log_cb": (None, [c.c_void_p, c.c_void_p]),
    "rd_kafka_new": (c.c_void_p, [c.c_int, c.c_void_p, c.c_char_p, c.c_size_t]),
    "rd_kafka_topic_new": (c.c_void_p, [c.c_void_p, c.c_char_p, c.c_void_p]),
    "rd_kafka_topic_destroy": (None, [c.c_void_p]),
    "rd_kafka_produce_batch": (c.c_int, [c.c_void_p, c.c_int32, c.c_int, c.c_void_p, c.c_int]),
    "rd_kafka_poll": (c.c_int, [c.c_void_p, c.c_int]),
    "rd_kafka_flush": (c.c_int, [c.c_void_p, c.c_int]),
    "rd_kafka_purge": (c.c_int, [c.c_void_p, c.c_int]),
    "rd_kafka_destroy": (None, [c.c_void_p]),
    "rd_kafka_err2str": (c.c_char_p, [c.c_int]),
    "rd_kafka_err2name": (c.c_char_p, [c.c_int]),
    "rd_kafka_fatal_error": (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t]),
}


@functools.cache
def library() -> c.CDLL:
    """Load the shared library of the installed confluent-kafka wheel, and declare the functions in use."""
    with extra("kafka"):
        import confluent_kafka

    folder = Path(confluent_kafka.__file__).parent
    found = sorted(folder.parent.glob("confluent_kafka.libs/librdkafka*.so*"))
    if not found:
        raise SinkError(f"no librdkafka beside {folder}: the confluent-kafka wheel of this platform does not bring it")
    lib = c.CDLL(str(found[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class NativeProducer:
    """One librdkafka producer. Raises SinkError for a refused setting. All other results are in the counters."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._lib = library()
        self._counters = np.zeros(kernels.C_TEXT + kernels.TEXT_BYTES, np.uint8)
        self._words: npt.NDArray[np.int64] = self._counters[: kernels.C_TEXT].view(np.int64)
        self._topics: dict[str, int] = {}
        self._handle = self._lib.rd_kafka_new(PRODUCER, self._settings(config), self._text, len(self._text))
        if not self._handle:
            raise SinkError(f"Kafka producer: {self._text.value.decode()}")

    def _settings(self, config: Mapping[str, str]) -> int:
        lib = self._lib
        self._text = c.create_string_buffer(512)
        settings: int = lib.rd_kafka_conf_new()
        for name, value in config.items():
            if lib.rd_kafka_conf_set(settings, name.encode(), value.encode(), self._text, 512):
                lib.rd_kafka_conf_destroy(settings)
                why = "" if "password" in name or "username" in name else f": {self._text.value.decode()}"
                raise SinkError(f"Kafka producer: {name} is refused{why}")
        lib.rd_kafka_conf_set_opaque(settings, self._counters.ctypes.data)
        lib.rd_kafka_conf_set_dr_msg_cb(settings, kernels.on_delivery.address)
        lib.rd_kafka_conf_set_error_cb(settings, kernels.on_error.address)
        lib.rd_kafka_conf_set_log_cb(settings, None)  # the error callback gets all that matters
        return settings

    @property
    def acked(self) -> int:
        """Messages acknowledged since the producer was made."""
        return int(self._words[kernels.C_ACKED // 8])

    @property
    def answered_bytes(self) -> int:
        """Bytes of keys and values that were acknowledged or failed."""
        return int(self._words[kernels.C_ACKED_BYTES // 8])

    @property
    def failed(self) -> int:
        return int(self._words[kernels.C_FAILED // 8])

    @property
    def client_error(self) -> int:
        """Code of the client's last report about its connections. 0: none."""
        return int(self._words[kernels.C_CLIENT_ERROR // 8])

    def forget_client_error(self) -> None:
        """Clear the client's last report."""
        self._words[kernels.C_CLIENT_ERROR // 8] = 0

    def first_failure(self) -> tuple[int, str]:
        """Return error code and text of the first failed message: topic, partition, the broker's text, the client's last report."""
        code = int(self._words[kernels.C_ERROR // 8])
        topic = {handle: name for name, handle in self._topics.items()}.get(int(self._words[kernels.C_TOPIC // 8]), "?")
        return code, f"{topic}/{int(self._words[kernels.C_PARTITION // 8])}: {self.describe(code)}{self.last_error(', after: ')}"

    def describe(self, code: int) -> str:
        name, text = self._lib.rd_kafka_err2name(code), self._lib.rd_kafka_err2str(code)
        return f"{name.decode()}: {text.decode()}"

    def last_error(self, before: str = "") -> str:
        """Return the client's last report about its connections, or an empty text."""
        text = self._counters[kernels.C_TEXT :].tobytes().split(b"\0", 1)[0].decode("utf-8", "replace")
        return before + text if text else ""

    def fatal_error(self) -> tuple[int, str] | None:
        """Return the fatal error of this producer, if there is one."""
        code = self._lib.rd_kafka_fatal_error(self._handle, self._text, len(self._text))
        return (code, self._text.value.decode("utf-8", "replace")) if code else None

    def produce(self, topic: str, messages: int, count: int) -> int:
        """Queue rd_kafka_message_t[count] at address `messages`. Returns how many were queued; the others have `err` set."""
        if topic not in self._topics:
            self._topics[topic] = self._lib.rd_kafka_topic_new(self._handle, topic.encode(), None)
        taken: int = self._lib.rd_kafka_produce_batch(self._topics[topic], -1, COPY | WITH_PARTITION, messages, count)
        return taken

    def poll(self, timeout_ms: int) -> None:
        """Serve callbacks. Waits for the first one up to the timeout."""
        self._lib.rd_kafka_poll(self._handle, timeout_ms)

    def flush(self, timeout_ms: int) -> bool:
        """Send queued messages at once and serve callbacks. Returns whether none is left."""
        return bool(self._lib.rd_kafka_flush(self._handle, timeout_ms) == 0)

    def destroy(self) -> None:
        """Drop all messages that are queued or in flight, and end. Messages that a broker has received stay there."""
        if not self._handle:
            return
        self._lib.rd_kafka_purge(self._handle, PURGE_ALL)
        self._lib.rd_kafka_flush(self._handle, 1000)
        for topic in self._topics.values():
            self._lib.rd_kafka_topic_destroy(topic)
        self._topics.clear()
        self._lib.rd_kafka_destroy(self._handle)
        self._handle = None
