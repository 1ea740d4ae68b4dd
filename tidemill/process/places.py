"""Where Spark masters are: in a process of ours, on this machine, or elsewhere; and under which address other machines reach this one."""

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
    """Raises ConfigError for what Spark takes for no master."""
    if master is None or master == "yarn":
        return
    if not any(kind.fullmatch(master) for kind in (_IN_PROCESS, _LOCAL_CLUSTER, _STANDALONE, _KUBERNETES)):
        raise ConfigError(
            f"--master {master!r} is not a Spark master",
            hint="Use local[N], local[*], spark://HOST:PORT[,HOST:PORT…], yarn or k8s://HOST:PORT.",
        )


def meet_master(master: str | None) -> None:
    """A standalone master that nobody runs is told at once: Spark itself tries for a minute. Raises ConfigError, SparkUnavailable."""
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
    """Whether a Spark master is a part of the process that asks for it."""
    return master is None or _LOCAL_MASTER.fullmatch(master) is not None


def is_in_process(master: str | None) -> bool:
    """As `is_here`, but not for `local-cluster[…]`, whose executors are processes of their own."""
    return master is None or _IN_PROCESS.fullmatch(master) is not None


def local_cores(master: str | None) -> int | None:
    """How many tasks a local Spark master runs at the same time; None for a cluster's, or none."""
    found = _IN_PROCESS.fullmatch(master or "")
    if found is None:
        return None
    return int(found[1]) if found[1] and found[1] != "*" else (os.cpu_count() or 1) if found[1] else 1


def masters(master: str | None) -> list[tuple[str, int]]:
    """Hosts and ports of a standalone master, of which one leads: `spark://A:7077,B:7077`. None of any other kind of master."""
    kind, _, addresses = (master or "").partition("://")
    found = [address.strip().rpartition(":") for address in addresses.split(",")] if kind == "spark" else []
    return [(host.strip("[]"), int(port)) for host, _, port in found if host and port.isdecimal()]


def with_retries(master: str, failures: int) -> str:
    """A local master fails a job with its first failed task unless its name says otherwise: then with so many."""
    found = _IN_PROCESS.fullmatch(master)
    return master if found is None or found[2] else f"local[{found[1] or 1},{failures}]"


def host_for(master: str | None) -> str:
    """The address that executors of a Spark master reach this machine at: the one that it reaches the master from."""
    if is_here(master):
        return LOOPBACK
    found = _MASTER.fullmatch(master or "")
    return towards(found[1], int(found[2] or 443)) if found is not None else socket.gethostbyname(socket.getfqdn())


def towards(host: str, port: int) -> str:
    """The address of this machine on the route to another one; nothing is sent. Its own name's where there is no route."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            found: str = probe.getsockname()[0]
            return found
    except OSError:
        return socket.gethostbyname(socket.getfqdn())
