"""This machine: programs and their versions, limits, the folder of compiled kernels. Does IO."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version

from tidemill import plugins
from tidemill.changelog.log_format import Source
from tidemill.config.sinks import RESERVED, SinkSpec
from tidemill.doctor.findings import Finding, bad, doubtful, good, of_error
from tidemill.errors import ConfigError
from tidemill.protocols.all import SPELLINGS
from tidemill.protocols.spec import ProtocolSpec

PYTHONS = ((3, 11), (3, 13))
FILES = 4096
"""Open files that a capture of a large cluster and Spark want, at least."""
_MEMORY_GIB = 3.0


def host() -> Iterator[Finding]:
    """Look at Python, Java, Spark, memory, limits and kernels."""
    yield _python()
    yield _java()
    yield _spark()
    yield _files()
    yield _memory()
    yield _kernels()
    yield from packages()


def packages() -> Iterator[Finding]:
    """Look at what other packages bring: sinks, protocols, sources and commands."""
    for group, built_in, kind in (
        (plugins.SINKS, RESERVED, SinkSpec),
        (plugins.PROTOCOLS, frozenset(SPELLINGS), ProtocolSpec),
        (plugins.SOURCES, frozenset(Source), None),
        (plugins.COMMANDS, frozenset[str](), None),
    ):
        try:
            for name, point in plugins.offered(group, built_in).items():
                plugins.load(point, kind)
                yield good("packages", f"{plugins.package_of(point)} brings {name} ({group})")
        except ConfigError as error:
            yield of_error("packages", error)


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return good("python", found)
    return doubtful("python", f"{found} was not tried", "Use Python 3.11, 3.12 or 3.13.")


def _java() -> Finding:
    """The Java that a run takes, by the same rule."""
    from tidemill.spark.session import NoJava, find_java, java_version

    try:
        home = find_java()
    except NoJava as error:
        return of_error("java", error)
    return good("java", f"{java_version(home)} in {home}")


def _spark() -> Finding:
    try:
        found = version("pyspark")
        wanted = next((r.partition("==")[2].partition(";")[0].strip() for r in requires("tidemill") or () if r.startswith("pyspark==")), "")
    except PackageNotFoundError as error:
        return bad("spark", f"the package {error.name} is not installed", "Install Tidemill with pip, which brings PySpark along.")
    if wanted and found != wanted:
        return doubtful("spark", f"PySpark {found}, but {wanted} is the version that was tried", f"pip install pyspark=={wanted}")
    return good("spark", f"PySpark {found}")


def spark_ports(master: str | None, user: Mapping[str, str]) -> Finding:
    """Look whether the ports of a session ask who connects."""
    from tidemill.spark.settings import NOT_AUTHENTICATED, is_authenticated

    try:
        if is_authenticated(master, user):
            return good("spark ports", "they ask who connects (spark.authenticate)")
    except ConfigError as error:
        return of_error("spark ports", error)
    what, _, remedy = NOT_AUTHENTICATED.partition(". ")
    return doubtful("spark ports", what, f"{remedy}.")


def _files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FILES:
        return good("open files", "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,}")
    return doubtful("open files", f"at most {hard:,}", f"Raise the hard limit to {FILES:,} or more: ulimit -Hn, LimitNOFILE= of systemd.")


def _memory() -> Finding:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    text = f"{gib:.1f} GiB, {os.cpu_count()} cores"
    if gib >= _MEMORY_GIB:
        return good("memory", text)
    return doubtful("memory", text, f"A run with Spark wants about {_MEMORY_GIB:.0f} GiB. Lower --memory-quota and Spark's memory.")


def _kernels() -> Finding:
    from tidemill.kernels.cache import cache
    from tidemill.kernels.warm import missing

    found = cache()
    folder = found.folder
    if folder is None:
        return bad("kernels", found.why, "Set TIDEMILL_KERNEL_CACHE to a folder that this user may write to.")
    count = len(missing())
    if count == 0:
        return good("kernels", f"compiled in {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        text = f"{count} modules are not compiled in {folder}, which cannot be written: each process compiles what it needs"
        return doubtful("kernels", text, "As a user who may write there: python -m tidemill.kernels.warm")
    return doubtful(
        "kernels",
        f"{count} modules are not compiled yet: the first start takes some seconds more",
        "python -m tidemill.kernels.warm",
    )
