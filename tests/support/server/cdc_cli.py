"""A stand-in for TiCDC's `cdc cli`: the requests, headers, checks and fields of its public sources, in both architectures.

New: pingcap/ticdc b813e76f9, cmd/cdc/cli and pkg/api/v2. Classic: pingcap/tiflow c7b2588ef, pkg/cmd/cli and pkg/api/v2. What Go's
JSON decoder does to an answer is done here too: fields that a structure has not are dropped, those that it needs have to be of its type.
"""

from __future__ import annotations

import csv
import enum
import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import httpx

GOLDEN = Path(__file__).parents[2] / "golden" / "peers"
Json = dict[str, Any]
Send = Callable[..., Awaitable[httpx.Response]]
OLDEST = (6, 2, 0)
STATES = frozenset({"normal", "pending", "failed", "stopped", "removed", "finished", "warning", "uninitialized", ""})
CLUSTER = {"ca_path": "", "cert_path": "", "key_path": ""}
"""The upstream of a request when no flag names another."""
FILLED = ("consistent", "mounter", "scheduler", "integrity", "synced_status")
"""Tables of which the client fills each key that an answer lacks with its own default (`toInternalReplicaConfigWithOriginConfig`)."""


class Architecture(enum.Enum):
    NEW = "new"
    CLASSIC = "classic"


class Refused(Exception):
    """What the client prints behind `Error: `."""


def known_keys(architecture: Architecture) -> frozenset[str]:
    """The keys of `ReplicaConfig` in JSON."""
    with (GOLDEN / "ticdc_api_keys.tsv").open(encoding="utf-8") as file:
        return frozenset(row["key"] for row in csv.DictReader(file, delimiter="\t") if row["arch"] == architecture.value)


DEFAULTS: Json = json.loads(
    r"""{"performance_mode":"throughput","memory_quota":1073741824,"case_sensitive":false,"check_gc_safe_point":true,
    "enable_sync_point":false,"enable_table_monitor":false,"bdr_mode":false,"enable_active_active":false,
    "active_active_progress_interval":1800000000000,"active_active_sync_stats_interval":60000000000,
    "sync_point_interval":600000000000,"sync_point_retention":86400000000000,
    "filter":{"rules":["*.*"]},"mounter":{"worker_num":16},
    "sink":{"csv":{"delimiter":",","quote":"\"","null":"\\N","include_commit_ts":false,"binary_encoding_method":"base64",
    "output_old_value":false,"output_handle_key":false,"output_field_header":false},"encoder_concurrency":32,"terminator":"\r\n",
    "date_separator":"day","enable_partition_separator":true,"only_output_updated_columns":false,
    "delete_only_output_handle_key_columns":false,"content_compatible":false,"advance_timeout_in_sec":150,"advance_timeout":150,
    "send_bootstrap_interval_in_sec":120,"send_bootstrap_in_msg_count":10000,"send_bootstrap_to_all_partition":true,
    "send_all_bootstrap_at_start":false,"send-all-bootstrap-at-start":false,"debezium_disable_schema":false,
    "debezium":{"output_old_value":true},"open":{"output_old_value":true}},
    "consistent":{"level":"none","max_log_size":64,"flush_interval":2000,"meta_flush_interval":200,"encoding_worker_num":16,
    "flush_worker_num":8,"storage":"","use_file_backend":false,"compression":"","memory_usage":{"memory_quota_percentage":50}},
    "scheduler":{"enable_table_across_nodes":false,"region_threshold":10000,"region_count_per_span":100,
    "region_count_refresh_interval":300000000000,"write_key_threshold":0,"scheduling_task_count_per_node":20,
    "enable_splittable_check":false,"force_split":false,"balance_score_threshold":20,"min_traffic_percentage":0.8,
    "max_traffic_percentage":1.25},"integrity":{"integrity_check_level":"none","corruption_handle_level":"warn"},
    "changefeed_error_stuck_duration":1800000000000,"synced_status":{"synced_check_interval":300,"checkpoint_interval":15}}""",
    strict=False,
)
"""`defaultReplicaConfig` as the client writes it into a request, with the names of both architectures."""


def decoded(found: Any, keys: frozenset[str], prefix: str = "") -> Any:
    """What Go's decoder keeps of a replica config."""
    if isinstance(found, list):
        return [decoded(one, keys, prefix) for one in found]
    if not isinstance(found, Mapping):
        return found
    tables = {key.removeprefix(prefix).partition(".")[0] for key in keys if key.startswith(prefix) and "." in key.removeprefix(prefix)}
    kept = {}
    for name, value in found.items():
        if prefix + name in keys:
            kept[name] = value
        elif name in tables and value is not None:
            kept[name] = decoded(value, keys, f"{prefix}{name}.")
    return kept


def leaves(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def filled(answer: Json, defaults: Json) -> Json:
    """The client's round trip from an answer to its own configuration and back, which `update --config` compares with the answer."""
    result = deepcopy(answer)
    for name, value in defaults.items():
        if name in FILLED:
            result[name] = _over(value, answer.get(name, {}))
        elif answer.get(name) is None:
            result[name] = deepcopy(value)
    return result


def _over(below: Json, above: Json) -> Json:
    merged = dict(below)
    for name, value in above.items():
        merged[name] = _over(merged.get(name, {}), value) if isinstance(value, dict) else value
    return merged


@dataclass(frozen=True)
class Request:
    """A request as it stands in `cdc_cli_requests.tsv`."""

    method: str
    path: str
    query: str
    body: str

    @classmethod
    def of(cls, sent: httpx.Request, names: Mapping[str, str]) -> Self:
        """What was sent. `names`: what stands for a segment of the path."""
        segments = [names.get(one, one) for one in sent.url.path.removeprefix("/api/v2/").split("/")]
        query = "&".join(f"{name}={value}" for name, value in sorted(sent.url.params.multi_items()))
        return cls(sent.method, "/".join(segments), query, " ".join(sorted(json.loads(sent.content))) if sent.content else "")


def recorded(architecture: Architecture) -> dict[str, list[tuple[Request, str]]]:
    """The requests of each command, in order, each with the structure that the client decodes the answer into."""
    found: dict[str, list[tuple[Request, str]]] = {}
    for row in _rows("cdc_cli_requests.tsv", architecture):
        requests = found.setdefault(row["command"], [])
        if row["method"]:
            requests.append((Request(row["method"], row["path"], row["query"], row["body"]), row["answer"]))
    return found


def check_answer(found: Any, structure: str, architecture: Architecture) -> None:
    """Whether Go's decoder can read an answer into a structure, and the fields that the client shows or decides by are there."""
    kind, _, item = structure.partition(" ")
    if kind == "ListResponse":
        assert found["total"] == len(found["items"])
        kind, item, found = item, "list", found["items"]
    if item == "list":
        for one in found:
            check_answer(one, kind, architecture)
        return
    fields = {row["field"]: row for row in _rows("cdc_cli_answers.tsv", architecture) if row["structure"] == kind}
    missing = {name for name, row in fields.items() if row["used"] == "yes" and name not in found}
    assert missing == set(), f"{kind} lacks {missing}"
    for name in fields.keys() & found.keys():
        _check_type(found[name], fields[name]["type"], architecture, f"{kind}.{name}")


def _check_type(found: Any, word: str, architecture: Architecture, where: str) -> None:
    if word in READ:
        assert found is not None, where
        assert READ[word](found), f"{where}: {found!r} is not a {word}"
    elif found is not None and word in ("TableName", "CaptureTaskStatus"):
        for one in found:
            check_answer(one, word, architecture)
    elif found is not None and word == "RunningError":
        check_answer(found, word, architecture)


def _rows(name: str, architecture: Architecture) -> list[dict[str, str]]:
    with (GOLDEN / name).open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if row["arch"] == architecture.value]


READ: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda found: isinstance(found, str),
    "bool": lambda found: isinstance(found, bool),
    "int": lambda found: type(found) is int and -(2**63) <= found < 2**63,
    "uint": lambda found: type(found) is int and 0 <= found < 2**64,
    "ints": lambda found: all(type(one) is int for one in found),
    "state": lambda found: found in STATES,
    "time": lambda found: datetime.fromisoformat(found).tzinfo is not None,
    "jsontime": lambda found: re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", found) is not None,
    "ReplicaConfig": lambda found: isinstance(found, dict),
}
"""Types of Go of a field and what they read."""


@dataclass
class CdcCli:
    """One client. `send(method, path, params=, json=, headers=)`; `exchanged`: what it sent, with the answers. `user`, `password`: of the
    command line or of what `configure-credentials` has stored."""

    send: Send
    architecture: Architecture = Architecture.NEW
    user: str = ""
    password: str = ""
    exchanged: list[httpx.Response] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    """With a user: the parameters of earlier requests, which the client's only map of parameters keeps."""

    @property
    def keys(self) -> frozenset[str]:
        return known_keys(self.architecture)

    @property
    def defaults(self) -> Json:
        found: Json = decoded(DEFAULTS, self.keys)
        return found

    def _names(self, keyspace: str) -> dict[str, str]:
        return {"keyspace" if self.architecture is Architecture.NEW else "namespace": keyspace}

    async def _call(self, method: str, path: str, params: Mapping[str, str] | None = None, body: Any = None) -> Any:
        basic = b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"Accept": "application/json", "X-client-version": "v9.0.0-beta.2", "Authorization": f"Basic {basic}"}
        given = {**self.kept, **(params or {})}
        if self.user:
            self.kept = given
        answer = await self.send(method, f"/api/v2/{path}", params=given, json=body, headers=headers)
        self.exchanged.append(answer)
        if not 200 <= answer.status_code <= 206:
            said = answer.json()
            assert set(said) >= {"error_msg", "error_code"}, said
            raise Refused(said["error_msg"])
        return answer.json() if answer.content else None

    async def check_version(self) -> None:
        """`checkCDCVersion`, before every command."""
        status = await self._call("GET", "status")
        parts = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?", status["version"])
        assert parts is not None, "invalid CDC cluster version"
        if tuple(map(int, parts.groups()[:3])) < OLDEST:
            raise Refused("Can't operate the TiCDC cluster, the cluster version is too old.")

    async def capture_list(self) -> list[Json]:
        await self.check_version()
        found = await self._call("GET", "captures")
        return [
            {"id": one["id"], "is-owner": one["is_owner"], "address": one["address"], "cluster-id": one["cluster_id"]}
            for one in found["items"]
        ]

    async def tso(self, **cluster: Any) -> Json:
        found: Json = await self._call("POST", "tso", body={"id": 0, **CLUSTER, **cluster})
        return found

    async def changefeed_list(self, *, everything: bool = False) -> list[Json]:
        await self.check_version()
        found = await self._call("GET", "changefeeds", {**self._names("default"), "state": "all"})
        return [one for one in found["items"] if everything or one["state"] not in ("finished", "removed")]

    async def _get(self, name: str) -> Json:
        found: Json = await self._call("GET", f"changefeeds/{name}", self._names("default"))
        return found | {"config": decoded(found["config"], self.keys)}

    async def query(self, name: str) -> Json:
        await self.check_version()
        return await self._get(name)

    async def query_simple(self, name: str) -> Json:
        (found,) = [one for one in await self.changefeed_list(everything=True) if one["id"] == name]
        return found

    async def create(self, name: str, sink_uri: str, *, start_ts: int = 0, force: bool = False, **config: Any) -> Json:
        """With --no-confirm. `config`: what the file sets, below its tables."""
        await self.check_version()
        now = await self.tso()
        wanted = _over(self.defaults, config)
        asked = {**CLUSTER, "replica_config": wanted, "start_ts": start_ts or (now["timestamp"] << 18) + now["logic_time"]}
        keyspace = self._names("") if self.architecture is Architecture.NEW else {}
        await self._call("POST", "verify_table", keyspace, {**asked, "sink_uri": sink_uri})
        body = {**asked, "changefeed_id": name, "target_ts": 0, "sink_uri": sink_uri}
        body |= {"replica_config": {**wanted, "ignore_ineligible_table": True}}
        body |= {"keyspace": ""} if self.architecture is Architecture.NEW else {"namespace": "default"}
        found: Json = await self._call("POST", "changefeeds", keyspace, body)
        return found

    async def update(self, name: str, *, sink_uri: str = "", target_ts: int = 0, **config: Any) -> tuple[list[str], Json | None]:
        """With --no-confirm. Return the paths that `Diff of changefeed config` lists, and what the server answers."""
        await self.check_version()
        old = await self._get(name)
        new = deepcopy(old)
        if config:
            new["config"] = _over(filled(old["config"], self.defaults), config)
        if target_ts:
            new["target_ts"] = target_ts
        before, after = dict(leaves(old["config"])), dict(leaves(new["config"]))
        differs = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        differs += ["target_ts"] if old.get("target_ts", 0) != new.get("target_ts", 0) else []
        if not differs and not sink_uri:
            return differs, None
        wanted = new["config"]
        if self.architecture is Architecture.NEW:
            await self._get_all_tables(wanted, old["checkpoint_ts"])
            wanted = {**wanted, "ignore_ineligible_table": True}
        body = {**CLUSTER, **self._names(""), "changefeed_id": "", "start_ts": 0, "target_ts": new.get("target_ts", 0)}
        body |= {"sink_uri": sink_uri, "replica_config": wanted}
        return differs, await self._call("PUT", f"changefeeds/{name}", self._names("default"), body)

    async def _get_all_tables(self, config: Json, ts: int) -> None:
        body = {**CLUSTER, "replica_config": config, "start_ts": ts, "sink_uri": ""}
        await self._call("POST", "get_all_tables", self._names("default"), body)

    async def pause(self, name: str) -> None:
        await self.check_version()
        await self._call("POST", f"changefeeds/{name}/pause", self._names("" if self.architecture is Architecture.NEW else "default"))

    async def resume(self, name: str, *, overwrite: str = "") -> None:
        await self.check_version()
        found = await self._get(name)
        if self.architecture is Architecture.NEW and found["state"] not in ("stopped", "failed", "finished"):
            raise Refused(f"[CDC:ErrChangefeedUpdateRefused]can only resume changefeed when it is stopped: {found['state']}")
        now = await self.tso(id=found["upstream_id"])
        ts = (now["timestamp"] << 18) + now["logic_time"] if overwrite == "now" else int(overwrite or 0)
        if ts and self.architecture is Architecture.NEW:
            found = await self._get(name)
            await self._get_all_tables(found["config"], found["checkpoint_ts"])
        await self._call("POST", f"changefeeds/{name}/resume", self._names("default"), {**CLUSTER, "overwrite_checkpoint_ts": ts})

    async def remove(self, name: str) -> None:
        await self.check_version()
        await self._get(name)
        await self._call("DELETE", f"changefeeds/{name}", self._names("default"))
        try:
            await self._get(name)
        except Refused as refused:
            if "ErrChangeFeedNotExists" not in str(refused):
                raise
        else:
            raise Refused("ErrChangeFeedDeletionUnfinished")

    async def statistics(self, name: str) -> Json:
        await self.check_version()
        found = await self._get(name)
        now = await self.tso(id=found["upstream_id"])
        return {
            "sink_gap": (found["resolved_ts"] >> 18) - (found["checkpoint_ts"] >> 18),
            "replication_gap": now["timestamp"] - (found["checkpoint_ts"] >> 18),
        }

    async def move(self, name: str, command: str, table_id: int = 100, node: str = "x") -> str:
        """`move-table` and the like, of the new architecture: they print what the server refuses."""
        what, params = command.replace("-", "_"), {"tableID": str(table_id), "mode": "0"}
        params |= {"targetNodeID": node} if command.startswith("move") else {}
        params |= {"wait": "true"} if command == "move-table" else {}
        await self.check_version()
        try:
            await self._call("POST", f"changefeeds/{name}/{what}", {**self._names("default"), **params})
        except Refused as refused:
            return str(refused)
        return ""

    async def processor_list(self) -> list[Json]:
        """Of the classic architecture."""
        await self.check_version()
        found = await self._call("GET", "processors")
        return [{"changefeed_id": one["changefeed_id"], "capture_id": one["capture_id"]} for one in found["items"]]

    async def processor_query(self, name: str, capture: str) -> list[int]:
        """Of the classic architecture."""
        await self.check_version()
        tables: list[int] = (await self._call("GET", f"processors/{name}/{capture}", self._names("default")))["table_ids"]
        return tables

    async def show_metadata(self) -> list[Json]:
        await self.check_version()
        found: list[Json] = await self._call("GET", "unsafe/metadata")
        return found

    async def resolve_lock(self, region_id: int, ts: int = 0) -> None:
        await self.check_version()
        if not ts:
            now = await self.tso()
            ts = now["timestamp"] - 60_000 << 18
        body = {**CLUSTER, "region_id": region_id, "ts": ts}
        await self._call("POST", "unsafe/resolve_lock", self._unsafe_names(), body)

    async def delete_service_gc_safepoint(self) -> None:
        await self.check_version()
        await self._call("DELETE", "unsafe/service_gc_safepoint", self._unsafe_names(), {"id": 0, **CLUSTER})

    def _unsafe_names(self) -> dict[str, str]:
        return self._names("") if self.architecture is Architecture.NEW else {}
