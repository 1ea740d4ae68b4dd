"""Spark masters: whether one runs in this process, on this machine or elsewhere, and the address at which other machines reach this one."""

from __future__ import annotations

import os
import re
import socket

from tidemill.errors import ConfigError, SparkUnavailable

LOOPBACK = "127.0.0.1"

_IN_PROCESS = re.compile(r"local(?:\[(\d+|\*)(?:, *(\d+))?\])?")
_LOCAL_MASTER = re.compile(r"local(-cluster)?(\[.*\])?")
_MASTER = re.compile(r"\w+(?::k8s)?://(?:https?://)?\[?([^/,\]]+?)\]?(?::(\d+))?(?:[,/].*)?")


_STANDALONE = re.compile(r"spark://([^/,\s:]+:\d+(?:,[^/,\s:]+:\d+)*)")
_KUBERNETES = re.compile(r"k8s://(?:https?://)?[^/\s]+(?:/.*)?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
MEET_S = 10.0


def check_master(master: str | None) -> None:
    """Raise ConfigError for a master that Spark does not accept."""
    if master is None or master == "yarn":
        return
    if not any(kind.fullmatch(master) for kind in (_IN_PROCESS, _LOCAL_CLUSTER, _STANDALONE, _KUBERNETES)):
        raise ConfigError(
            f"--master {master!r} is not a Spark master",
            hint="Use local[N], local[*], spark://HOST:PORT[,HOST:PORT…], yarn or k8s://HOST:PORT.",
        )


def check_master_reachable(master: str | None) -> None:
    """Check that a standalone master answers. (Spark itself tries for a minute.) Raises ConfigError, SparkUnavailable."""
    check_master(master)
    failures = []
    for host, port in masters(master):
        try:
            socket.create_connection((host, port), timeout=MEET_S).close()
            return
        except (OSError, OverflowError) as error:
            failures.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
    if failures:
        raise SparkUnavailable(f"no Spark master answers: {'; '.join(failures)}", hint="Start it, or correct --master.")


def is_here(master: str | None) -> bool:
    """Return whether the Spark master runs inside the process that starts it."""
    return master is None or _LOCAL_MASTER.fullmatch(master) is not None


def is_in_process(master: str | None) -> bool:
    """Like `is_here`, but False for `local-cluster[…]`, whose executors are separate processes."""
    return master is None or _IN_PROCESS.fullmatch(master) is not None


def local_cores(master: str | None) -> int | None:
    """Return how many tasks a local Spark master runs at the same time; None for a cluster, or without a master."""
    found = _IN_PROCESS.fullmatch(master or "")
    if found is None:
        return None
    return int(found[1]) if found[1] and found[1] != "*" else (os.cpu_count() or 1) if found[1] else 1


def masters(master: str | None) -> list[tuple[str, int]]:
    """Return hosts and ports of the standalone masters, of which one leads: `spark://A:7077,B:7077`. Empty for other masters."""
    kind, _, addresses = (master or "").partition("://")
    found = [address.strip().rpartition(":") for address in addresses.split(",")] if kind == "spark" else []
    return [(host.strip("[]"), int(port)) for host, _, port in found if host and port.isdecimal()]


def with_retries(master: str, failures: int) -> str:
    """Set how many failures of a task a local master allows, if its name does not set it: the default is none."""
    found = _IN_PROCESS.fullmatch(master)
    return master if found is None or found[2] else f"local[{found[1] or 1},{failures}]"


def host_for(master: str | None) -> str:
    """Return the address of this machine for executors of a Spark master: the one on the route to the master."""
    if is_here(master):
        return LOOPBACK
    found = _MASTER.fullmatch(master or "")
    return towards(found[1], int(found[2] or 443)) if found is not None else socket.gethostbyname(socket.getfqdn())


def towards(host: str, port: int) -> str:
    """Return this machine's address on the route to another one; nothing is sent. Without a route, return the address of its own name."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            found: str = probe.getsockname()[0]
            return found
    except OSError:
        return socket.gethostbyname(socket.getfqdn())
