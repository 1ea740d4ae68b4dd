from tidemill.wire import metapb_pb2 as _metapb_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[ErrorType]
    UNKNOWN: _ClassVar[ErrorType]
    NOT_BOOTSTRAPPED: _ClassVar[ErrorType]
    STORE_TOMBSTONE: _ClassVar[ErrorType]
    ALREADY_BOOTSTRAPPED: _ClassVar[ErrorType]
    INCOMPATIBLE_VERSION: _ClassVar[ErrorType]
    REGION_NOT_FOUND: _ClassVar[ErrorType]
    GLOBAL_CONFIG_NOT_FOUND: _ClassVar[ErrorType]
    DUPLICATED_ENTRY: _ClassVar[ErrorType]
    ENTRY_NOT_FOUND: _ClassVar[ErrorType]
    INVALID_VALUE: _ClassVar[ErrorType]
    DATA_COMPACTED: _ClassVar[ErrorType]
    REGIONS_NOT_CONTAIN_ALL_KEY_RANGE: _ClassVar[ErrorType]

class ServiceMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN_SVC_MODE: _ClassVar[ServiceMode]
    PD_SVC_MODE: _ClassVar[ServiceMode]
    API_SVC_MODE: _ClassVar[ServiceMode]
OK: ErrorType
UNKNOWN: ErrorType
NOT_BOOTSTRAPPED: ErrorType
STORE_TOMBSTONE: ErrorType
ALREADY_BOOTSTRAPPED: ErrorType
INCOMPATIBLE_VERSION: ErrorType
REGION_NOT_FOUND: ErrorType
GLOBAL_CONFIG_NOT_FOUND: ErrorType
DUPLICATED_ENTRY: ErrorType
ENTRY_NOT_FOUND: ErrorType
INVALID_VALUE: ErrorType
DATA_COMPACTED: ErrorType
REGIONS_NOT_CONTAIN_ALL_KEY_RANGE: ErrorType
UNKNOWN_SVC_MODE: ServiceMode
PD_SVC_MODE: ServiceMode
API_SVC_MODE: ServiceMode

class BatchScanRegionsRequest(_message.Message):
    __slots__ = ("header", "need_buckets", "ranges", "limit", "contain_all_key_range")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NEED_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CONTAIN_ALL_KEY_RANGE_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    need_buckets: bool
    ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    limit: int
    contain_all_key_range: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., need_buckets: bool = ..., ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., limit: _Optional[int] = ..., contain_all_key_range: bool = ...) -> None: ...

class BatchScanRegionsResponse(_message.Message):
    __slots__ = ("header", "regions")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    regions: _containers.RepeatedCompositeFieldContainer[Region]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., regions: _Optional[_Iterable[_Union[Region, _Mapping]]] = ...) -> None: ...

class CPUStats(_message.Message):
    __slots__ = ("UnifiedRead", "Scheduler")
    UNIFIEDREAD_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    UnifiedRead: int
    Scheduler: int
    def __init__(self, UnifiedRead: _Optional[int] = ..., Scheduler: _Optional[int] = ...) -> None: ...

class DeleteGCBarrierRequest(_message.Message):
    __slots__ = ("header", "keyspace_scope", "barrier_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    keyspace_scope: KeyspaceScope
    barrier_id: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., keyspace_scope: _Optional[_Union[KeyspaceScope, _Mapping]] = ..., barrier_id: _Optional[str] = ...) -> None: ...

class DeleteGCBarrierResponse(_message.Message):
    __slots__ = ("header", "deleted_barrier_info")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DELETED_BARRIER_INFO_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    deleted_barrier_info: GCBarrierInfo
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., deleted_barrier_info: _Optional[_Union[GCBarrierInfo, _Mapping]] = ...) -> None: ...

class DeleteGlobalGCBarrierRequest(_message.Message):
    __slots__ = ("header", "barrier_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    barrier_id: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., barrier_id: _Optional[str] = ...) -> None: ...

class DeleteGlobalGCBarrierResponse(_message.Message):
    __slots__ = ("header", "deleted_barrier_info")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DELETED_BARRIER_INFO_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    deleted_barrier_info: GlobalGCBarrierInfo
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., deleted_barrier_info: _Optional[_Union[GlobalGCBarrierInfo, _Mapping]] = ...) -> None: ...

class DfsStatItem(_message.Message):
    __slots__ = ("scope", "written_bytes", "write_requests")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    scope: DfsStatScope
    written_bytes: int
    write_requests: int
    def __init__(self, scope: _Optional[_Union[DfsStatScope, _Mapping]] = ..., written_bytes: _Optional[int] = ..., write_requests: _Optional[int] = ...) -> None: ...

class DfsStatScope(_message.Message):
    __slots__ = ("is_global", "keyspace_id", "component")
    IS_GLOBAL_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    is_global: bool
    keyspace_id: int
    component: str
    def __init__(self, is_global: bool = ..., keyspace_id: _Optional[int] = ..., component: _Optional[str] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("type", "message")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    type: ErrorType
    message: str
    def __init__(self, type: _Optional[_Union[ErrorType, str]] = ..., message: _Optional[str] = ...) -> None: ...

class GCBarrierInfo(_message.Message):
    __slots__ = ("barrier_id", "barrier_ts", "ttl_seconds")
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    barrier_id: str
    barrier_ts: int
    ttl_seconds: int
    def __init__(self, barrier_id: _Optional[str] = ..., barrier_ts: _Optional[int] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class GCSafePointV2(_message.Message):
    __slots__ = ("gc_safe_point", "keyspace_id")
    GC_SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    gc_safe_point: int
    keyspace_id: int
    def __init__(self, gc_safe_point: _Optional[int] = ..., keyspace_id: _Optional[int] = ...) -> None: ...

class GCState(_message.Message):
    __slots__ = ("keyspace_scope", "is_keyspace_level_gc", "txn_safe_point", "gc_safe_point", "gc_barriers")
    KEYSPACE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    IS_KEYSPACE_LEVEL_GC_FIELD_NUMBER: _ClassVar[int]
    TXN_SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    GC_SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    GC_BARRIERS_FIELD_NUMBER: _ClassVar[int]
    keyspace_scope: KeyspaceScope
    is_keyspace_level_gc: bool
    txn_safe_point: int
    gc_safe_point: int
    gc_barriers: _containers.RepeatedCompositeFieldContainer[GCBarrierInfo]
    def __init__(self, keyspace_scope: _Optional[_Union[KeyspaceScope, _Mapping]] = ..., is_keyspace_level_gc: bool = ..., txn_safe_point: _Optional[int] = ..., gc_safe_point: _Optional[int] = ..., gc_barriers: _Optional[_Iterable[_Union[GCBarrierInfo, _Mapping]]] = ...) -> None: ...

class GetAllGCSafePointV2Request(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ...) -> None: ...

class GetAllGCSafePointV2Response(_message.Message):
    __slots__ = ("header", "gc_safe_points", "revision")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GC_SAFE_POINTS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    gc_safe_points: _containers.RepeatedCompositeFieldContainer[GCSafePointV2]
    revision: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., gc_safe_points: _Optional[_Iterable[_Union[GCSafePointV2, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class GetAllStoresRequest(_message.Message):
    __slots__ = ("header", "exclude_tombstone_stores")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_TOMBSTONE_STORES_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    exclude_tombstone_stores: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., exclude_tombstone_stores: bool = ...) -> None: ...

class GetAllStoresResponse(_message.Message):
    __slots__ = ("header", "stores")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    stores: _containers.RepeatedCompositeFieldContainer[_metapb_pb2.Store]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., stores: _Optional[_Iterable[_Union[_metapb_pb2.Store, _Mapping]]] = ...) -> None: ...

class GetClusterConfigRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ...) -> None: ...

class GetClusterConfigResponse(_message.Message):
    __slots__ = ("header", "cluster")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    cluster: _metapb_pb2.Cluster
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., cluster: _Optional[_Union[_metapb_pb2.Cluster, _Mapping]] = ...) -> None: ...

class GetClusterInfoRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class GetClusterInfoResponse(_message.Message):
    __slots__ = ("header", "serviceModes", "tso_urls")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVICEMODES_FIELD_NUMBER: _ClassVar[int]
    TSO_URLS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    serviceModes: _containers.RepeatedScalarFieldContainer[ServiceMode]
    tso_urls: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., serviceModes: _Optional[_Iterable[_Union[ServiceMode, str]]] = ..., tso_urls: _Optional[_Iterable[str]] = ...) -> None: ...

class GetGCSafePointRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ...) -> None: ...

class GetGCSafePointResponse(_message.Message):
    __slots__ = ("header", "safe_point")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    safe_point: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., safe_point: _Optional[int] = ...) -> None: ...

class GetGCSafePointV2Request(_message.Message):
    __slots__ = ("header", "keyspace_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    keyspace_id: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., keyspace_id: _Optional[int] = ...) -> None: ...

class GetGCSafePointV2Response(_message.Message):
    __slots__ = ("header", "safe_point")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    safe_point: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., safe_point: _Optional[int] = ...) -> None: ...

class GetGCStateRequest(_message.Message):
    __slots__ = ("header", "keyspace_scope", "exclude_gc_barriers", "include_global_gc_barriers")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_GC_BARRIERS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_GLOBAL_GC_BARRIERS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    keyspace_scope: KeyspaceScope
    exclude_gc_barriers: bool
    include_global_gc_barriers: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., keyspace_scope: _Optional[_Union[KeyspaceScope, _Mapping]] = ..., exclude_gc_barriers: bool = ..., include_global_gc_barriers: bool = ...) -> None: ...

class GetGCStateResponse(_message.Message):
    __slots__ = ("header", "gc_state", "global_gc_barriers")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GC_STATE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_GC_BARRIERS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    gc_state: GCState
    global_gc_barriers: GlobalGCBarriersInfo
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., gc_state: _Optional[_Union[GCState, _Mapping]] = ..., global_gc_barriers: _Optional[_Union[GlobalGCBarriersInfo, _Mapping]] = ...) -> None: ...

class GetMembersRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ...) -> None: ...

class GetMembersResponse(_message.Message):
    __slots__ = ("header", "members", "leader", "etcd_leader", "tso_allocator_leaders")
    class TsoAllocatorLeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Member
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Member, _Mapping]] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ETCD_LEADER_FIELD_NUMBER: _ClassVar[int]
    TSO_ALLOCATOR_LEADERS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    members: _containers.RepeatedCompositeFieldContainer[Member]
    leader: Member
    etcd_leader: Member
    tso_allocator_leaders: _containers.MessageMap[str, Member]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., leader: _Optional[_Union[Member, _Mapping]] = ..., etcd_leader: _Optional[_Union[Member, _Mapping]] = ..., tso_allocator_leaders: _Optional[_Mapping[str, Member]] = ...) -> None: ...

class GetRegionByIDRequest(_message.Message):
    __slots__ = ("header", "region_id", "need_buckets")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REGION_ID_FIELD_NUMBER: _ClassVar[int]
    NEED_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    region_id: int
    need_buckets: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., region_id: _Optional[int] = ..., need_buckets: bool = ...) -> None: ...

class GetRegionRequest(_message.Message):
    __slots__ = ("header", "region_key", "need_buckets")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REGION_KEY_FIELD_NUMBER: _ClassVar[int]
    NEED_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    region_key: bytes
    need_buckets: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., region_key: _Optional[bytes] = ..., need_buckets: bool = ...) -> None: ...

class GetRegionResponse(_message.Message):
    __slots__ = ("header", "region", "leader", "pending_peers", "buckets")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    PENDING_PEERS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    region: _metapb_pb2.Region
    leader: _metapb_pb2.Peer
    pending_peers: _containers.RepeatedCompositeFieldContainer[_metapb_pb2.Peer]
    buckets: _metapb_pb2.Buckets
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., region: _Optional[_Union[_metapb_pb2.Region, _Mapping]] = ..., leader: _Optional[_Union[_metapb_pb2.Peer, _Mapping]] = ..., pending_peers: _Optional[_Iterable[_Union[_metapb_pb2.Peer, _Mapping]]] = ..., buckets: _Optional[_Union[_metapb_pb2.Buckets, _Mapping]] = ...) -> None: ...

class GetStoreRequest(_message.Message):
    __slots__ = ("header", "store_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    store_id: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., store_id: _Optional[int] = ...) -> None: ...

class GetStoreResponse(_message.Message):
    __slots__ = ("header", "store", "stats")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    store: _metapb_pb2.Store
    stats: StoreStats
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., store: _Optional[_Union[_metapb_pb2.Store, _Mapping]] = ..., stats: _Optional[_Union[StoreStats, _Mapping]] = ...) -> None: ...

class GlobalGCBarrierInfo(_message.Message):
    __slots__ = ("barrier_id", "barrier_ts", "ttl_seconds")
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    barrier_id: str
    barrier_ts: int
    ttl_seconds: int
    def __init__(self, barrier_id: _Optional[str] = ..., barrier_ts: _Optional[int] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class GlobalGCBarriersInfo(_message.Message):
    __slots__ = ("barriers",)
    BARRIERS_FIELD_NUMBER: _ClassVar[int]
    barriers: _containers.RepeatedCompositeFieldContainer[GlobalGCBarrierInfo]
    def __init__(self, barriers: _Optional[_Iterable[_Union[GlobalGCBarrierInfo, _Mapping]]] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("start_key", "end_key")
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    END_KEY_FIELD_NUMBER: _ClassVar[int]
    start_key: bytes
    end_key: bytes
    def __init__(self, start_key: _Optional[bytes] = ..., end_key: _Optional[bytes] = ...) -> None: ...

class KeyspaceScope(_message.Message):
    __slots__ = ("keyspace_id",)
    KEYSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    keyspace_id: int
    def __init__(self, keyspace_id: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "member_id", "peer_urls", "client_urls", "leader_priority", "deploy_path", "binary_version", "git_hash", "dc_location")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_URLS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_URLS_FIELD_NUMBER: _ClassVar[int]
    LEADER_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_PATH_FIELD_NUMBER: _ClassVar[int]
    BINARY_VERSION_FIELD_NUMBER: _ClassVar[int]
    GIT_HASH_FIELD_NUMBER: _ClassVar[int]
    DC_LOCATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    member_id: int
    peer_urls: _containers.RepeatedScalarFieldContainer[str]
    client_urls: _containers.RepeatedScalarFieldContainer[str]
    leader_priority: int
    deploy_path: str
    binary_version: str
    git_hash: str
    dc_location: str
    def __init__(self, name: _Optional[str] = ..., member_id: _Optional[int] = ..., peer_urls: _Optional[_Iterable[str]] = ..., client_urls: _Optional[_Iterable[str]] = ..., leader_priority: _Optional[int] = ..., deploy_path: _Optional[str] = ..., binary_version: _Optional[str] = ..., git_hash: _Optional[str] = ..., dc_location: _Optional[str] = ...) -> None: ...

class PeerStat(_message.Message):
    __slots__ = ("region_id", "read_keys", "read_bytes", "query_stats", "written_keys", "written_bytes", "cpu_stats")
    REGION_ID_FIELD_NUMBER: _ClassVar[int]
    READ_KEYS_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUERY_STATS_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_KEYS_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_STATS_FIELD_NUMBER: _ClassVar[int]
    region_id: int
    read_keys: int
    read_bytes: int
    query_stats: QueryStats
    written_keys: int
    written_bytes: int
    cpu_stats: CPUStats
    def __init__(self, region_id: _Optional[int] = ..., read_keys: _Optional[int] = ..., read_bytes: _Optional[int] = ..., query_stats: _Optional[_Union[QueryStats, _Mapping]] = ..., written_keys: _Optional[int] = ..., written_bytes: _Optional[int] = ..., cpu_stats: _Optional[_Union[CPUStats, _Mapping]] = ...) -> None: ...

class QueryStats(_message.Message):
    __slots__ = ("GC", "Get", "Scan", "Coprocessor", "Delete", "DeleteRange", "Put", "Prewrite", "AcquirePessimisticLock", "Commit", "Rollback")
    GC_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    COPROCESSOR_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    DELETERANGE_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    PREWRITE_FIELD_NUMBER: _ClassVar[int]
    ACQUIREPESSIMISTICLOCK_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    GC: int
    Get: int
    Scan: int
    Coprocessor: int
    Delete: int
    DeleteRange: int
    Put: int
    Prewrite: int
    AcquirePessimisticLock: int
    Commit: int
    Rollback: int
    def __init__(self, GC: _Optional[int] = ..., Get: _Optional[int] = ..., Scan: _Optional[int] = ..., Coprocessor: _Optional[int] = ..., Delete: _Optional[int] = ..., DeleteRange: _Optional[int] = ..., Put: _Optional[int] = ..., Prewrite: _Optional[int] = ..., AcquirePessimisticLock: _Optional[int] = ..., Commit: _Optional[int] = ..., Rollback: _Optional[int] = ...) -> None: ...

class RecordPair(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("region", "leader", "pending_peers", "buckets")
    REGION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    PENDING_PEERS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    region: _metapb_pb2.Region
    leader: _metapb_pb2.Peer
    pending_peers: _containers.RepeatedCompositeFieldContainer[_metapb_pb2.Peer]
    buckets: _metapb_pb2.Buckets
    def __init__(self, region: _Optional[_Union[_metapb_pb2.Region, _Mapping]] = ..., leader: _Optional[_Union[_metapb_pb2.Peer, _Mapping]] = ..., pending_peers: _Optional[_Iterable[_Union[_metapb_pb2.Peer, _Mapping]]] = ..., buckets: _Optional[_Union[_metapb_pb2.Buckets, _Mapping]] = ...) -> None: ...

class RequestHeader(_message.Message):
    __slots__ = ("cluster_id", "sender_id", "caller_id", "caller_component")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    CALLER_ID_FIELD_NUMBER: _ClassVar[int]
    CALLER_COMPONENT_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    sender_id: int
    caller_id: str
    caller_component: str
    def __init__(self, cluster_id: _Optional[int] = ..., sender_id: _Optional[int] = ..., caller_id: _Optional[str] = ..., caller_component: _Optional[str] = ...) -> None: ...

class ResponseHeader(_message.Message):
    __slots__ = ("cluster_id", "error")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    error: Error
    def __init__(self, cluster_id: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ScanRegionsRequest(_message.Message):
    __slots__ = ("header", "start_key", "limit", "end_key")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    END_KEY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    start_key: bytes
    limit: int
    end_key: bytes
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., start_key: _Optional[bytes] = ..., limit: _Optional[int] = ..., end_key: _Optional[bytes] = ...) -> None: ...

class ScanRegionsResponse(_message.Message):
    __slots__ = ("header", "region_metas", "leaders", "regions")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REGION_METAS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    region_metas: _containers.RepeatedCompositeFieldContainer[_metapb_pb2.Region]
    leaders: _containers.RepeatedCompositeFieldContainer[_metapb_pb2.Peer]
    regions: _containers.RepeatedCompositeFieldContainer[Region]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., region_metas: _Optional[_Iterable[_Union[_metapb_pb2.Region, _Mapping]]] = ..., leaders: _Optional[_Iterable[_Union[_metapb_pb2.Peer, _Mapping]]] = ..., regions: _Optional[_Iterable[_Union[Region, _Mapping]]] = ...) -> None: ...

class SetGCBarrierRequest(_message.Message):
    __slots__ = ("header", "keyspace_scope", "barrier_id", "barrier_ts", "ttl_seconds")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    keyspace_scope: KeyspaceScope
    barrier_id: str
    barrier_ts: int
    ttl_seconds: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., keyspace_scope: _Optional[_Union[KeyspaceScope, _Mapping]] = ..., barrier_id: _Optional[str] = ..., barrier_ts: _Optional[int] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class SetGCBarrierResponse(_message.Message):
    __slots__ = ("header", "new_barrier_info")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NEW_BARRIER_INFO_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    new_barrier_info: GCBarrierInfo
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., new_barrier_info: _Optional[_Union[GCBarrierInfo, _Mapping]] = ...) -> None: ...

class SetGlobalGCBarrierRequest(_message.Message):
    __slots__ = ("header", "barrier_id", "barrier_ts", "ttl_seconds")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BARRIER_ID_FIELD_NUMBER: _ClassVar[int]
    BARRIER_TS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    barrier_id: str
    barrier_ts: int
    ttl_seconds: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., barrier_id: _Optional[str] = ..., barrier_ts: _Optional[int] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class SetGlobalGCBarrierResponse(_message.Message):
    __slots__ = ("header", "new_barrier_info")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NEW_BARRIER_INFO_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    new_barrier_info: GlobalGCBarrierInfo
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., new_barrier_info: _Optional[_Union[GlobalGCBarrierInfo, _Mapping]] = ...) -> None: ...

class SlowTrend(_message.Message):
    __slots__ = ("cause_value", "cause_rate", "result_value", "result_rate")
    CAUSE_VALUE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_RATE_FIELD_NUMBER: _ClassVar[int]
    RESULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    RESULT_RATE_FIELD_NUMBER: _ClassVar[int]
    cause_value: float
    cause_rate: float
    result_value: float
    result_rate: float
    def __init__(self, cause_value: _Optional[float] = ..., cause_rate: _Optional[float] = ..., result_value: _Optional[float] = ..., result_rate: _Optional[float] = ...) -> None: ...

class SnapshotStat(_message.Message):
    __slots__ = ("region_id", "generate_duration_sec", "send_duration_sec", "total_duration_sec", "transport_size")
    REGION_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATE_DURATION_SEC_FIELD_NUMBER: _ClassVar[int]
    SEND_DURATION_SEC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DURATION_SEC_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    region_id: int
    generate_duration_sec: int
    send_duration_sec: int
    total_duration_sec: int
    transport_size: int
    def __init__(self, region_id: _Optional[int] = ..., generate_duration_sec: _Optional[int] = ..., send_duration_sec: _Optional[int] = ..., total_duration_sec: _Optional[int] = ..., transport_size: _Optional[int] = ...) -> None: ...

class StoreStats(_message.Message):
    __slots__ = ("store_id", "capacity", "available", "region_count", "sending_snap_count", "receiving_snap_count", "start_time", "applying_snap_count", "is_busy", "used_size", "bytes_written", "keys_written", "bytes_read", "keys_read", "interval", "cpu_usages", "read_io_rates", "write_io_rates", "op_latencies", "peer_stats", "query_stats", "slow_score", "damaged_regions_id", "is_apply_busy", "snapshot_stats", "slow_trend", "is_grpc_paused", "total_memory", "used_memory", "network_slow_scores", "dfs", "is_stopping")
    class NetworkSlowScoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    REGION_COUNT_FIELD_NUMBER: _ClassVar[int]
    SENDING_SNAP_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECEIVING_SNAP_COUNT_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    APPLYING_SNAP_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_BUSY_FIELD_NUMBER: _ClassVar[int]
    USED_SIZE_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    KEYS_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    KEYS_READ_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    CPU_USAGES_FIELD_NUMBER: _ClassVar[int]
    READ_IO_RATES_FIELD_NUMBER: _ClassVar[int]
    WRITE_IO_RATES_FIELD_NUMBER: _ClassVar[int]
    OP_LATENCIES_FIELD_NUMBER: _ClassVar[int]
    PEER_STATS_FIELD_NUMBER: _ClassVar[int]
    QUERY_STATS_FIELD_NUMBER: _ClassVar[int]
    SLOW_SCORE_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_REGIONS_ID_FIELD_NUMBER: _ClassVar[int]
    IS_APPLY_BUSY_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_STATS_FIELD_NUMBER: _ClassVar[int]
    SLOW_TREND_FIELD_NUMBER: _ClassVar[int]
    IS_GRPC_PAUSED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MEMORY_FIELD_NUMBER: _ClassVar[int]
    USED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    NETWORK_SLOW_SCORES_FIELD_NUMBER: _ClassVar[int]
    DFS_FIELD_NUMBER: _ClassVar[int]
    IS_STOPPING_FIELD_NUMBER: _ClassVar[int]
    store_id: int
    capacity: int
    available: int
    region_count: int
    sending_snap_count: int
    receiving_snap_count: int
    start_time: int
    applying_snap_count: int
    is_busy: bool
    used_size: int
    bytes_written: int
    keys_written: int
    bytes_read: int
    keys_read: int
    interval: TimeInterval
    cpu_usages: _containers.RepeatedCompositeFieldContainer[RecordPair]
    read_io_rates: _containers.RepeatedCompositeFieldContainer[RecordPair]
    write_io_rates: _containers.RepeatedCompositeFieldContainer[RecordPair]
    op_latencies: _containers.RepeatedCompositeFieldContainer[RecordPair]
    peer_stats: _containers.RepeatedCompositeFieldContainer[PeerStat]
    query_stats: QueryStats
    slow_score: int
    damaged_regions_id: _containers.RepeatedScalarFieldContainer[int]
    is_apply_busy: bool
    snapshot_stats: _containers.RepeatedCompositeFieldContainer[SnapshotStat]
    slow_trend: SlowTrend
    is_grpc_paused: bool
    total_memory: int
    used_memory: int
    network_slow_scores: _containers.ScalarMap[int, int]
    dfs: _containers.RepeatedCompositeFieldContainer[DfsStatItem]
    is_stopping: bool
    def __init__(self, store_id: _Optional[int] = ..., capacity: _Optional[int] = ..., available: _Optional[int] = ..., region_count: _Optional[int] = ..., sending_snap_count: _Optional[int] = ..., receiving_snap_count: _Optional[int] = ..., start_time: _Optional[int] = ..., applying_snap_count: _Optional[int] = ..., is_busy: bool = ..., used_size: _Optional[int] = ..., bytes_written: _Optional[int] = ..., keys_written: _Optional[int] = ..., bytes_read: _Optional[int] = ..., keys_read: _Optional[int] = ..., interval: _Optional[_Union[TimeInterval, _Mapping]] = ..., cpu_usages: _Optional[_Iterable[_Union[RecordPair, _Mapping]]] = ..., read_io_rates: _Optional[_Iterable[_Union[RecordPair, _Mapping]]] = ..., write_io_rates: _Optional[_Iterable[_Union[RecordPair, _Mapping]]] = ..., op_latencies: _Optional[_Iterable[_Union[RecordPair, _Mapping]]] = ..., peer_stats: _Optional[_Iterable[_Union[PeerStat, _Mapping]]] = ..., query_stats: _Optional[_Union[QueryStats, _Mapping]] = ..., slow_score: _Optional[int] = ..., damaged_regions_id: _Optional[_Iterable[int]] = ..., is_apply_busy: bool = ..., snapshot_stats: _Optional[_Iterable[_Union[SnapshotStat, _Mapping]]] = ..., slow_trend: _Optional[_Union[SlowTrend, _Mapping]] = ..., is_grpc_paused: bool = ..., total_memory: _Optional[int] = ..., used_memory: _Optional[int] = ..., network_slow_scores: _Optional[_Mapping[int, int]] = ..., dfs: _Optional[_Iterable[_Union[DfsStatItem, _Mapping]]] = ..., is_stopping: bool = ...) -> None: ...

class TimeInterval(_message.Message):
    __slots__ = ("start_timestamp", "end_timestamp")
    START_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    END_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    start_timestamp: int
    end_timestamp: int
    def __init__(self, start_timestamp: _Optional[int] = ..., end_timestamp: _Optional[int] = ...) -> None: ...

class Timestamp(_message.Message):
    __slots__ = ("physical", "logical", "suffix_bits")
    PHYSICAL_FIELD_NUMBER: _ClassVar[int]
    LOGICAL_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_BITS_FIELD_NUMBER: _ClassVar[int]
    physical: int
    logical: int
    suffix_bits: int
    def __init__(self, physical: _Optional[int] = ..., logical: _Optional[int] = ..., suffix_bits: _Optional[int] = ...) -> None: ...

class TsoRequest(_message.Message):
    __slots__ = ("header", "count", "dc_location")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DC_LOCATION_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    count: int
    dc_location: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., count: _Optional[int] = ..., dc_location: _Optional[str] = ...) -> None: ...

class TsoResponse(_message.Message):
    __slots__ = ("header", "count", "timestamp")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    count: int
    timestamp: Timestamp
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., count: _Optional[int] = ..., timestamp: _Optional[_Union[Timestamp, _Mapping]] = ...) -> None: ...

class UpdateServiceGCSafePointRequest(_message.Message):
    __slots__ = ("header", "service_id", "TTL", "safe_point")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    service_id: bytes
    TTL: int
    safe_point: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., service_id: _Optional[bytes] = ..., TTL: _Optional[int] = ..., safe_point: _Optional[int] = ...) -> None: ...

class UpdateServiceGCSafePointResponse(_message.Message):
    __slots__ = ("header", "service_id", "TTL", "min_safe_point")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    MIN_SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    service_id: bytes
    TTL: int
    min_safe_point: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., service_id: _Optional[bytes] = ..., TTL: _Optional[int] = ..., min_safe_point: _Optional[int] = ...) -> None: ...

class UpdateServiceSafePointV2Request(_message.Message):
    __slots__ = ("header", "service_id", "safe_point", "ttl", "keyspace_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    service_id: bytes
    safe_point: int
    ttl: int
    keyspace_id: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., service_id: _Optional[bytes] = ..., safe_point: _Optional[int] = ..., ttl: _Optional[int] = ..., keyspace_id: _Optional[int] = ...) -> None: ...

class UpdateServiceSafePointV2Response(_message.Message):
    __slots__ = ("header", "service_id", "ttl", "min_safe_point")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    MIN_SAFE_POINT_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    service_id: bytes
    ttl: int
    min_safe_point: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., service_id: _Optional[bytes] = ..., ttl: _Optional[int] = ..., min_safe_point: _Optional[int] = ...) -> None: ...
