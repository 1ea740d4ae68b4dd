"""Real servers in the place of the session's MariaDB, of programs that are on this machine already: a TiDB with a store of its own, and a
MySQL 8.

`chosen` names those that run, TIDEMILL_TIDB_SERVER and TIDEMILL_MYSQL_SERVER their programs.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import ClassVar

from tests.support.servers.mariadb import MariaDb

_PLAIN = ("--secure-file-priv=NULL", "--auto-generate-certs=OFF")
"""No folder whose name a package builds in, which the server wants to be there; no TLS that clients take where nobody asks for it: a proxy
between reads what they say."""


class RealDatabase(MariaDb):
    """A server of another make. `variable`: names its program, which may stand in PATH as `program`."""

    variable: ClassVar[str]
    program: ClassVar[str]

    @classmethod
    def of_this_machine(cls) -> str | None:
        """Return the program, if there is one."""
        return os.environ.get(cls.variable) or shutil.which(cls.program)

    def _found(self) -> str:
        program = self.of_this_machine()
        assert program is not None, "asked for only where there is one"
        return program


class TiDb(RealDatabase):
    """A `tidb-server` of which nobody else is part."""

    variable, program = "TIDEMILL_TIDB_SERVER", "tidb-server"

    def _install(self) -> None:
        """The server makes its data itself."""
        text = {
            "host": "127.0.0.1", "port": self.port, "store": "unistore", "path": str(self.data), "socket": str(self.folder / "sock"),
            "temp-dir": str(self.temporary), "tmp-storage-path": str(self.temporary),
        }  # fmt: skip
        lines = [f"{name} = {json.dumps(value)}" for name, value in text.items()]
        lines += [
            "[status]",
            "report-status = false",
            "[log]",
            'level = "error"',
            f"slow-query-file = {json.dumps(str(self.folder / 'slow.log'))}",
        ]
        (self.folder / "tidb.toml").write_text("\n".join(lines))

    def _command(self) -> list[str]:
        return [self._program, "-config", str(self.folder / "tidb.toml"), *self._options]


class MySql8(RealDatabase):
    """A `mysqld`."""

    variable, program = "TIDEMILL_MYSQL_SERVER", "mysqld"

    @classmethod
    def of_this_machine(cls) -> str | None:
        """Return the program, if there is one. MariaDB's package has a `mysqld` too, which is MariaDB."""
        found = super().of_this_machine()
        return None if found is None or Path(found).resolve().name == "mariadbd" else found

    def _install(self) -> None:
        """The server makes its own root for `localhost` only, which is not the name of a client whose name is not looked up."""
        first = self.folder / "first.sql"
        first.write_text("CREATE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n")
        self._run(
            self._program,
            "--no-defaults",
            "--initialize-insecure",
            "--user=root",
            f"--datadir={self.data}",
            f"--init-file={first}",
            *_PLAIN,
        )

    def _command(self) -> list[str]:
        files = (f"--datadir={self.data}", f"--socket={self.folder}/sock", f"--pid-file={self.folder}/pid", f"--tmpdir={self.temporary}")
        address = (f"--port={self.port}", "--user=root", "--bind-address=127.0.0.1", "--skip-name-resolve", "--mysqlx=OFF")
        small = ("--performance-schema=OFF", "--skip-log-bin", f"--innodb-buffer-pool-size={self._memory}")
        return [self._program, "--no-defaults", *files, *address, *small, *_PLAIN, *self._options]


REAL: dict[str, type[RealDatabase]] = {"tidb": TiDb, "mysql": MySql8}
