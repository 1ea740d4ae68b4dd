"""`tidemill server`: one capture, any number of changefeeds, and TiCDC's HTTP API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill import logs
from tidemill.cli.changefeeds.server_file import read
from tidemill.cli.shared import options as shared
from tidemill.cli.shared.folders import made_folder
from tidemill.cli.shared.tls import CaOption, CertOption, KeyOption
from tidemill.delivery.zone import parse_zone, zone_name
from tidemill.errors import ConfigError
from tidemill.process.places import check_master, check_master_reachable, is_here
from tidemill.spark import settings
from tidemill.traces import process as traces

if TYPE_CHECKING:
    from tidemill.server.permitted import Permitted

DATA_DIR = Path("tidemill-server")
"""What it takes where it is given none."""


def command(
    pd: Annotated[str | None, typer.Option("--pd", help="PD addresses, HOST:PORT[,HOST:PORT…]. Required.", show_default=False)] = None,
    log_place: Annotated[
        str | None,
        typer.Option(
            "--log", envvar="TIDEMILL_LOG", help="Folder or URL of the change log; a new one is made. Required.", show_default=False
        ),
    ] = None,
    addr: Annotated[str, typer.Option("--addr", help="Serve the HTTP API and /metrics here, HOST:PORT.")] = "127.0.0.1:8300",
    advertise_addr: Annotated[str | None, typer.Option("--advertise-addr", help="Where clients reach it. Default: --addr.")] = None,
    data_dir: Annotated[Path, typer.Option("--data-dir", help="State of the changefeeds, status and scratch files.")] = DATA_DIR,
    gc_ttl: Annotated[
        int,
        typer.Option(
            "--gc-ttl",
            help="Seconds that PD keeps history for a capture that is down, and that the log is kept for a changefeed that stands still.",
        ),
    ] = 86400,
    capture_session_ttl: Annotated[
        float,
        typer.Option("--capture-session-ttl", help="Seconds after which another server of this log leads if the leader is not heard of."),
    ] = 5.0,
    etcd: Annotated[
        str | None,
        typer.Option("--etcd", help="HOST:PORT,… of an etcd, such as PD, that keeps the leader's lease. Default: the log's storage."),
    ] = None,
    ticdc_version: Annotated[
        str | None,
        typer.Option("--ticdc-version", help="The version of TiCDC that the API answers (v8.5.7); cdc cli takes none before 6.2.0."),
    ] = None,
    standby: Annotated[
        bool,
        typer.Option(
            help="While another server leads, have capture, delivery and Spark loaded (about 600 MiB), so as to take over within seconds."
        ),
    ] = True,
    tz: shared.TzOption = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", is_eager=True, callback=read, help="TOML file with these flags as keys, as TiCDC's. A flag wins."),
    ] = None,
    ca: CaOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    cert_allowed_cn: Annotated[
        str | None, typer.Option("--cert-allowed-cn", help="Common names of clients' certificates that are allowed, separated by commas.")
    ] = None,
    mtls: Annotated[
        bool,
        typer.Option("--mtls", help="Clients have to show a certificate of --ca, with whatever common name. TiCDC's \\[security] mtls."),
    ] = False,
    auth_file: Annotated[
        Path | None, typer.Option("--auth-file", help="File with a token a line. Whoever changes something has to send one of them.")
    ] = None,
    auth_env: Annotated[
        str | None, typer.Option("--auth-env", help="Environment variable with the lines of an --auth-file, instead of the file.")
    ] = None,
    auth_command: Annotated[
        str | None, typer.Option("--auth-command", help="Command that prints the lines of an --auth-file, started without a shell.")
    ] = None,
    secret_folders: Annotated[
        str | None,
        typer.Option("--secret-folders", help="Folders of password and certificate files that sink URIs may name."),
    ] = None,
    secret_env_prefix: Annotated[
        str | None,
        typer.Option("--secret-env-prefix", help="How variables begin that sink URIs may name (TIDEMILL_SECRET_)."),
    ] = None,
    secret_commands: Annotated[
        str | None,
        typer.Option("--secret-commands", help="Programs by absolute path that sink URIs may run for a secret, with any arguments (none)."),
    ] = None,
    sink_folders: Annotated[
        str | None, typer.Option("--sink-folders", help="Folders that sink URIs may write to (the system's folder for temporary files).")
    ] = None,
    allow_sink_hosts: Annotated[
        str | None,
        typer.Option("--allow-sink-hosts", help="Hosts, networks and patterns that sink URIs may name (any)."),
    ] = None,
    log_partitions: shared.LogPartitionsOption = None,
    split_tables: shared.SplitTablesOption = None,
    log_compression: shared.LogCompressionOption = None,
    log_retention: shared.LogRetentionOption = None,
    capture_config: shared.CaptureConfigOption = None,
    memory_quota: shared.MemoryQuotaOption = None,
    stuck_after: shared.StuckAfterOption = None,
    lock_grace: shared.LockGraceOption = None,
    tikv_scans: shared.TikvScansOption = None,
    transport: shared.TransportOption = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Number of capture groups (1).")] = None,
    control_addr: shared.ControlAddrOption = None,
    master: shared.SparkMasterOption = None,
    spark_conf: shared.SparkConfOption = None,
    trigger_ms: Annotated[
        int | None, typer.Option("--trigger-ms", min=1, help="A batch of a changefeed begins at most this often (1000).")
    ] = None,
    retry: Annotated[
        str | None, typer.Option("--sink-retry", help="How long a failed batch is retried before the changefeed begins again (5m).")
    ] = None,
    log_level: shared.LogLevelOption = "info",
    log_file: Annotated[Path | None, typer.Option("--log-file", help="A file that all processes append to. Default: stderr.")] = None,
) -> None:
    """Capture a TiDB cluster once, and deliver its changes to any number of sinks, until stopped.

    Changefeeds are created, paused and removed by its HTTP API, which is TiCDC's: `tidemill cli changefeed create`, or cdc cli. One process
    captures, another one delivers. Each is started again when it dies, and each changefeed goes on from its checkpoint.
    """
    from tidemill.capture.config import duration_ms
    from tidemill.capture.tikv.client.tls import security_of
    from tidemill.changefeed.runner_options import RETRY_S, TRIGGER_MS
    from tidemill.cli.shared.capture_settings import capture_settings
    from tidemill.secret import secret_of
    from tidemill.server.api.listener import Certificates
    from tidemill.server.api.tokens import Tokens
    from tidemill.server.host.messages import HostOrder
    from tidemill.server.options import TICDC_VERSION, ServerOptions, checked_ticdc_version
    from tidemill.server.run import locked, serve
    from tidemill.server.standing_by import Standby
    from tidemill.server.upstream import Upstream

    if pd is None or log_place is None:
        missing = " and ".join(name for name, value in (("--pd", pd), ("--log", log_place)) if value is None)
        raise ConfigError(
            f"{missing} {'are' if pd is log_place else 'is'} missing",
            hint="For example: tidemill server --pd 127.0.0.1:2379 --log /var/lib/tidemill/log",
        )
    logs.setup(log_level, log_file, part="server")
    traces.begin("server")
    check_master(master)
    check_master_reachable(master)
    if gc_ttl <= 0:
        raise ConfigError(f"--gc-ttl {gc_ttl} is not a number of seconds")
    if not 1 <= capture_session_ttl <= 300:
        raise ConfigError(f"--capture-session-ttl {capture_session_ttl:g}: expected 1 to 300 seconds")
    addresses = pd.split(",")
    allowed = tuple(_listed(cert_allowed_cn))
    certificates = Certificates(cert, key, ca, allowed, mtls)
    certificates.context()
    options = ServerOptions(
        log=log_place,
        data_dir=data_dir.absolute(),
        address=advertise_addr or addr,
        zone=zone_name(parse_zone(tz)),
        gc_ttl=float(gc_ttl),
        pd_addrs=tuple(addresses),
        ttl=capture_session_ttl,
        standby=standby,
        etcd=tuple(_listed(etcd)),
        own_rules=capture_config is not None,
        ticdc_version=checked_ticdc_version(ticdc_version or TICDC_VERSION),
        permitted=_permitted(secret_folders, secret_env_prefix, secret_commands, sink_folders, allow_sink_hosts),
    )
    capture = capture_settings(
        pd=pd,
        log=log_place,
        data_dir=data_dir.absolute() / "capture",
        partitions=log_partitions,
        split_tables=split_tables,
        compression=log_compression,
        retention=log_retention,
        gc_ttl=gc_ttl,
        transport=transport,
        memory_quota=memory_quota,
        stuck_after=stuck_after,
        lock_grace=lock_grace,
        tikv_scans=tikv_scans,
        ca=ca,
        cert=cert,
        key=key,
        rules_file=capture_config,
        workers=workers or 1,
        control_addr=control_addr,
        master=None if is_here(master) or not workers else master,
        log_level=log_level,
        log_file=log_file,
    )
    host = HostOrder(
        log=log_place,
        data_dir=data_dir.absolute(),
        master=master,
        spark_conf=settings.options(spark_conf or ()),
        trigger_ms=trigger_ms or TRIGGER_MS,
        retry_s=duration_ms(retry, "--sink-retry") / 1000 if retry is not None else RETRY_S,
        log_level=log_level,
        log_file=log_file,
    )
    lines = secret_of("auth", {"auth-file": auth_file, "auth-env": auth_env, "auth-command": auth_command}, "the command line")
    tokens = Tokens(auth_file, lines) if lines else None
    upstream = Upstream(addresses, security_of(addresses, ca, cert, key))
    made_folder("--data-dir", options.data_dir)
    with locked(options.data_dir):
        asyncio.run(serve(options, Standby(capture, host), addr, upstream, certificates, tokens, log_file))


def _permitted(secrets: str | None, prefix: str | None, commands: str | None, sinks: str | None, hosts: str | None) -> Permitted:
    """Return what sink URIs of the API may name. Raises ConfigError."""
    from tidemill.server.permitted import Permitted

    given: dict[str, Any] = {"secrets": _folders(secrets, "--secret-folders"), "sinks": _folders(sinks, "--sink-folders"), "prefix": prefix}
    programs = tuple(map(str, _folders(commands, "--secret-commands") or ()))
    return Permitted(**{name: value for name, value in given.items() if value is not None}, hosts=tuple(_listed(hosts)), commands=programs)


def _folders(text: str | None, flag: str) -> tuple[Path, ...] | None:
    if text is None:
        return None
    folders = tuple(map(Path, _listed(text)))
    if not all(folder.is_absolute() for folder in folders):
        raise ConfigError(f"{flag} {text}: expected absolute paths")
    return folders


def _listed(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]
