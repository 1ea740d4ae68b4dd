"""A stand-in for TiCDC's `cdc cli`: the requests, headers, checks and fields of its public sources, in both architectures.

New: pingcap/ticdc b813e76f9, cmd/cdc/cli and pkg/api/v2. Classic: pingcap/tiflow c7b2588ef, pkg/cmd/cli and pkg/api/v2. What Go's
JSON decoder does to an answer is done here too: fields that a structure has not are dropped, those that it needs have to be of its type.
"""

from __future__ import annotations

import csv
import enum
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

GOLDEN = Path(__file__).parents[2] / "golden" / "peers"
Json = dict[str, Any]
Send = Callable[..., Awaitable[httpx.Response]]
OLDEST = (6, 2, 0)
STATES = frozenset({"normal", "pending", "failed", "stopped", "removed", "finished", "warning", "uninitialized", ""})
SINK_AND_FILTER = ("sink", "filter")
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


@dataclass
class CdcCli:
    """One client. `send(method, path, params=, json=, headers=)`; `requests`: what it sent."""

    send: Send
    architecture: Architecture = Architecture.NEW
    requests: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)

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
        headers = {"Accept": "application/json", "X-client-version": "v9.0.0-beta.2", "Authorization": "Basic Og=="}
        self.requests.append((method, path, dict(params or {}), body))
        answer = await self.send(method, f"/api/v2/{path}", params=dict(params or {}), json=body, headers=headers)
        if not 200 <= answer.status_code <= 206:
            said = answer.json()
            assert set(said) >= {"error_msg", "error_code"}, said
            raise Refused(said["error_msg"])
        return answer.json() if answer.content else None

    async def check_version(self) -> None:
        """`checkCDCVersion`, before every command."""
        status = await self._call("GET", "status")
        fields = {"version": str, "git_hash": str, "id": str, "cluster_id": str, "pid": int, "is_owner": bool, "liveness": int}
        assert {name: type(status[name]) for name in fields} == fields
        parts = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?", status["version"])
        assert parts is not None, "invalid CDC cluster version"
        if tuple(map(int, parts.groups()[:3])) < OLDEST:
            raise Refused("Can't operate the TiCDC cluster, the cluster version is too old.")

    async def capture_list(self) -> list[Json]:
        await self.check_version()
        found = await self._call("GET", "captures")
        assert found["total"] == len(found["items"])
        return [
            {"id": one["id"], "is-owner": one["is_owner"], "address": one["address"], "cluster-id": one["cluster_id"]}
            for one in found["items"]
        ]

    async def tso(self, **cluster: Any) -> Json:
        found: Json = await self._call("POST", "tso", body={"id": 0, "ca_path": "", "cert_path": "", "key_path": "", **cluster})
        assert {name: type(value) for name, value in found.items()} == {"timestamp": int, "logic_time": int}
        return found

    async def changefeed_list(self, *, everything: bool = False) -> list[Json]:
        await self.check_version()
        found = await self._call("GET", "changefeeds", {**self._names("default"), "state": "all"})
        for one in found["items"]:
            assert one["state"] in STATES
            datetime.strptime(one["checkpoint_time"], "%Y-%m-%d %H:%M:%S.%f")
            assert one.keys() >= {"upstream_id", "id", "checkpoint_tso", "error", *self._names("")}
        return [one for one in found["items"] if everything or one["state"] not in ("finished", "removed")]

    async def _get(self, name: str) -> Json:
        found: Json = await self._call("GET", f"changefeeds/{name}", self._names("default"))
        datetime.fromisoformat(found["create_time"])
        datetime.strptime(found["checkpoint_time"], "%Y-%m-%d %H:%M:%S.%f")
        assert found["state"] in STATES
        assert (type(found["resolved_ts"]), type(found["checkpoint_ts"])) == (int, int)
        return found | {"config": decoded(found["config"], self.keys)}

    async def query(self, name: str) -> Json:
        await self.check_version()
        return await self._get(name)

    async def create(self, name: str, sink_uri: str, *, start_ts: int = 0, force: bool = False, **config: Any) -> Json:
        """With --no-confirm. `config`: what the file sets, below its tables."""
        await self.check_version()
        cluster = {"ca_path": "", "cert_path": "", "key_path": ""}
        now = await self.tso()
        wanted = _over(self.defaults, config)
        asked = {**cluster, "replica_config": wanted, "start_ts": start_ts or (now["timestamp"] << 18) + now["logic_time"]}
        keyspace = self._names("") if self.architecture is Architecture.NEW else {}
        tables = await self._call("POST", "verify_table", keyspace, {**asked, "sink_uri": sink_uri})
        assert set(tables) <= {"ineligible_tables", "eligible_tables", "all_tables"}
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
        asked = {"ca_path": "", "cert_path": "", "key_path": "", "replica_config": new["config"], "sink_uri": ""}
        if self.architecture is Architecture.NEW:
            await self._call("POST", "get_all_tables", self._names("default"), {**asked, "start_ts": old["checkpoint_ts"]})
        else:
            await self._call("POST", "verify_table", {}, {**asked, "start_ts": old["checkpoint_ts"]})
        body = {**asked, "changefeed_id": "", "start_ts": 0, "target_ts": new.get("target_ts", 0), "sink_uri": sink_uri}
        body |= {"replica_config": {**new["config"], "ignore_ineligible_table": True}}
        return differs, await self._call("PUT", f"changefeeds/{name}", self._names("default"), body)

    async def pause(self, name: str) -> None:
        await self.check_version()
        await self._call("POST", f"changefeeds/{name}/pause", self._names("default"))

    async def resume(self, name: str, *, overwrite: str = "") -> None:
        await self.check_version()
        found = await self._get(name)
        if self.architecture is Architecture.NEW and found["state"] not in ("stopped", "failed", "finished"):
            raise Refused(f"[CDC:ErrChangefeedUpdateRefused]can only resume changefeed when it is stopped: {found['state']}")
        now = await self.tso(id=found["upstream_id"])
        ts = (now["timestamp"] << 18) + now["logic_time"] if overwrite == "now" else int(overwrite or 0)
        if ts:
            body = {"replica_config": found["config"], "start_ts": found["checkpoint_ts"], "sink_uri": "", "ca_path": ""}
            await self._call("POST", "get_all_tables", self._names("default"), body)
        cluster = {"ca_path": "", "cert_path": "", "key_path": ""}
        await self._call("POST", f"changefeeds/{name}/resume", self._names("default"), {**cluster, "overwrite_checkpoint_ts": ts})

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
        found, now = await self._get(name), await self.tso()
        return {
            "sink_gap": (found["resolved_ts"] >> 18) - (found["checkpoint_ts"] >> 18),
            "replication_gap": now["timestamp"] - (found["checkpoint_ts"] >> 18),
        }

    async def move(self, name: str, what: str, **params: str) -> str:
        """`move-table` and the like, of the new architecture: they print what the server refuses."""
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

    async def unsafe(self, method: str, what: str, body: Any = None) -> Any:
        await self.check_version()
        names = {} if what == "metadata" or self.architecture is Architecture.CLASSIC else self._names("")
        return await self._call(method, f"unsafe/{what}", names, body)
