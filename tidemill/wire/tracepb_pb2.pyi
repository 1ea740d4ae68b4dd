from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RemoteParentSpan(_message.Message):
    __slots__ = ("trace_id", "span_id")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    trace_id: int
    span_id: int
    def __init__(self, trace_id: _Optional[int] = ..., span_id: _Optional[int] = ...) -> None: ...

class TraceContext(_message.Message):
    __slots__ = ("remote_parent_spans", "duration_threshold_ms")
    REMOTE_PARENT_SPANS_FIELD_NUMBER: _ClassVar[int]
    DURATION_THRESHOLD_MS_FIELD_NUMBER: _ClassVar[int]
    remote_parent_spans: _containers.RepeatedCompositeFieldContainer[RemoteParentSpan]
    duration_threshold_ms: int
    def __init__(self, remote_parent_spans: _Optional[_Iterable[_Union[RemoteParentSpan, _Mapping]]] = ..., duration_threshold_ms: _Optional[int] = ...) -> None: ...
