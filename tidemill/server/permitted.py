"""What the server does in the name of who calls its API: which files and variables it reads for a sink URI, where it writes, whom it calls.

A URI names files of the server's machine: `password-file=/etc/shadow` would send that file to whatever host the URI names. So only what
the server was started with is permitted. Changefeeds that are there already go on as they were.
"""

from __future__ import annotations

import ipaddress
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tidemill import secret
from tidemill.config.parameters import ALL_SCHEMES
from tidemill.config.sinks import Place
from tidemill.config.uri import SinkUri
from tidemill.errors import ConfigError
from tidemill.process.children import SECRET_PREFIX
from tidemill.visible import cut

READ = frozenset({"ca", "cert", "key", "ssl-ca", "ssl-cert", "ssl-key", "tls_ca_file_path", "tls_ca_dir_path"}) | secret.FILES
"""Parameters that name a file to read, of sinks and of schema registries."""
VARIABLES = secret.VARIABLES
"""Parameters that name an environment variable."""
RUN = secret.COMMANDS
"""Parameters that are a command."""
WRITTEN = frozenset({"store", "warehouse", "claim-check-storage-uri"})
"""Parameters that name a folder, or a URL, to write to."""
CALLED = frozenset({"schema-registry", "catalog-uri"})
"""Parameters that are an address to call, with parameters of its own."""
HOSTS = frozenset({"endpoint", "endpoint_override", "blob_storage_authority", "dfs_storage_authority"})
"""Parameters that are a host to call, with a scheme or without. Those with `_` are pyarrow's, in addresses of stores."""
INNER = (
    READ | VARIABLES | RUN | HOSTS | frozenset({"region", "scheme", "timeout", "force-path-style", "insecure-skip-verify", *secret.SECRETS})
)
"""Parameters that an address within a sink URI may have. Who reads such an address knows more of them: `host` of a catalog's database is
another host, `read_default_file` a file."""

SECRET_FOLDERS = (Path("/run/secrets"), Path("/etc/tidemill"), Path("/etc/ssl"))
VARIABLE_PREFIX = SECRET_PREFIX
_LOCAL = ("", "file", "sqlite")


@dataclass(frozen=True, slots=True)
class Permitted:
    """`secrets`: folders of files that are read. `sinks`: folders that are written to. `prefix`: of variables. `hosts`: names, addresses,
    networks (10.0.0.0/8) and patterns (*.example.com), with :PORT or without; empty: any. `commands`: programs that are run, whatever
    their arguments."""

    secrets: tuple[Path, ...] = SECRET_FOLDERS
    sinks: tuple[Path, ...] = field(default_factory=lambda: (Path(tempfile.gettempdir()),))
    prefix: str = VARIABLE_PREFIX
    hosts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    def check(self, sink: SinkUri, own_store: Path) -> None:
        """Raise ConfigError for what a complete sink URI may not name. `own_store`: the entry store that the server chooses itself."""
        parts = urlsplit(sink.text)
        if sink.spec.place is Place.HOSTS:
            self._check_hosts(parts.netloc, "the sink URI")
        elif parts.path and (not parts.netloc or sink.scheme not in ALL_SCHEMES):
            self._check_folder(parts.path, self.sinks, "the sink URI", "--sink-folders")
        self._check_parameters(parse_qsl(parts.query, keep_blank_values=True), own_store)

    def _check_parameters(self, given: Iterable[tuple[str, str]], own_store: Path) -> None:
        for name, value in given:
            if not value:
                continue
            if name in HOSTS:
                self._check_hosts((value.partition("://")[2] or value).partition("/")[0], name)
            if name in READ:
                self._check_folder(value, self.secrets, name, "--secret-folders")
            elif name in VARIABLES and not value.startswith(self.prefix):
                raise ConfigError(
                    f"{name} = {cut(value)}: the API may name variables that begin with {self.prefix}",
                    hint="Rename it, or start the server with another --secret-env-prefix.",
                )
            elif name in RUN and secret.argv_of(value)[0] not in self.commands:
                raise ConfigError(
                    f"{name} runs {cut(secret.argv_of(value)[0])}: the API may name {', '.join(self.commands) or 'no command'}",
                    hint="Start the server with the program in --secret-commands.",
                )
            elif name in WRITTEN | CALLED and Path(value) != own_store:
                self._check_address(name, value, own_store)

    def _check_address(self, name: str, value: str, own_store: Path) -> None:
        parts = urlsplit(value)
        if parts.scheme.partition("+")[0] in _LOCAL and not parts.netloc:
            self._check_folder(parts.path, self.sinks, name, "--sink-folders")
        else:
            self._check_hosts(parts.netloc, name)
        inner = parse_qsl(parts.query)
        if unknown := sorted({key for key, _ in inner} - INNER):
            raise ConfigError(
                f"{name}: the API may name no parameter {cut(unknown[0])} there", hint=f"It may name {', '.join(sorted(INNER))}."
            )
        self._check_parameters(inner, own_store)

    def _check_folder(self, path: str, folders: tuple[Path, ...], what: str, flag: str) -> None:
        real = Path(os.path.realpath(path))  # links, too, stay below
        if not any(real.is_relative_to(os.path.realpath(folder)) for folder in folders):
            below = ", ".join(map(str, folders)) or "no folder"
            raise ConfigError(
                f"{what} names {cut(path)}: the API may name files below {below}",
                hint=f"Put it there, or start the server with {flag} FOLDER,…",
            )

    def _check_hosts(self, netloc: str, what: str) -> None:
        for host in _hosts(netloc) if self.hosts else ():
            if not any(_fits(host, one) for one in self.hosts):
                raise ConfigError(
                    f"{what} names the host {cut(host)}, which is not among --allow-sink-hosts",
                    hint="Start the server with it in --allow-sink-hosts.",
                )


def _hosts(netloc: str) -> Iterator[str]:
    """Yield each HOST or HOST:PORT of an authority, which may have several."""
    for one in netloc.rpartition("@")[2].split(","):
        yield one.strip().lower()


def _fits(host: str, allowed: str) -> bool:
    allowed = allowed.lower()
    name = urlsplit(f"//{host}").hostname or ""
    if fnmatch(host, allowed) or fnmatch(name, allowed):
        return True
    try:
        return ipaddress.ip_address(name) in ipaddress.ip_network(allowed)
    except ValueError:
        return False
