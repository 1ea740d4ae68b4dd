"""Which options `--help` shows, and under which title. Rare ones are shown by `--help-all`; all of them are taken in any case."""

from __future__ import annotations

from dataclasses import dataclass

FEW = 12
"""A command with fewer options than this shows them in one panel."""
OWN = "Options"
"""The panel of options that no other one has: those that belong to the command alone."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Options of several commands about one thing."""

    title: str
    common: frozenset[str]
    rare: frozenset[str]


def _panel(title: str, common: str, rare: str = "") -> Panel:
    return Panel(title, frozenset(common.split()), frozenset(rare.split()))


PANELS = (
    _panel(
        OWN,
        "",
        "--capture-session-ttl --ticdc-version --standby --state"
        # playground
        " --region-every --resolved-interval --gc-life-time --gc-barriers --pds --gates --old-feed --orphan-every --large-every"
        " --large-rows --large-bytes --load-kv --exit-after --ignore-error --binlog-strategy --tables --ddl-every"
        " --stores --seed --transactions"
        # consume and diff
        " --upstream-uri --partition-num --claim-check-storage-uri --skip-ddl --ended-topic --flush-interval --chunk-size"
        # pump and drainer
        " --node-id --heartbeat-interval --gc-waits-for-drainers --fake-binlog-interval --max-message-size --stop-write-at-available-space"
        " --detect-interval --txn-batch --enable-dispatch --sync-ddl --channel-id --relay-max-file-size --socket"
        # canal
        " --get-wait --zookeeper-timeout --memory-limit --max-connections --destination",
    ),
    _panel(
        "Changefeed",
        "--changefeed-id --start-ts --target-ts --snapshot --create-tables --schema-registry --tz",
        "--skip-row --sink-retry --changefeed-error-stuck-duration",
    ),
    _panel(
        "Capture",
        "--capture-config --gc-ttl --memory-quota --workers",
        "--region-stuck-after --lock-grace --tikv-scans --transport --control-addr --filter-loop",
    ),
    _panel("Change log", "--log-retention", "--log-partitions --split-table --log-compression"),
    _panel("TiDB-Binlog", "--binlog --drainer-addr --drainer-id"),
    _panel("Spark", "--master --spark-conf --parallelism", "--trigger-ms"),
    _panel(
        "Server",
        "--server --user --password",
        "--password-file --password-env --password-command --token-file --token-env --token-command",
    ),
    _panel(
        "TLS",
        "--ca --cert --key --ssl-ca --ssl-cert --ssl-key --tls-cert --tls-key --tls-client-ca",
        "--cert-allowed-cn --mtls --key-password-file --key-password-env --key-password-command",
    ),
    _panel(
        "Who may do what",
        "--auth-file",
        "--auth-env --auth-command --secret-folders --secret-env-prefix --secret-commands --sink-folders --allow-sink-hosts",
    ),
    _panel("Watching", "--status-addr --log-level --log-file", "-L"),
)

RARE_IN = {verb: frozenset({"--pd", "--log-level", "--keyspace"}) for verb in ("cli", "changefeed")}
"""Options that are common elsewhere: what a client takes as TiCDC's does, and needs no more."""


def panel_of(flag: str) -> Panel | None:
    """The panel that has an option, by the first of its names."""
    return next((panel for panel in PANELS if flag in panel.common | panel.rare), None)


def is_rare(flag: str, verb: str) -> bool:
    """Whether only `--help-all` shows an option of a verb."""
    panel = panel_of(flag)
    return flag in RARE_IN.get(verb, ()) or (panel is not None and flag in panel.rare)
