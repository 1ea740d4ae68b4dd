"""The files of `tidemill diff --fix-sql`."""

from __future__ import annotations

from pathlib import Path

from tests.support.servers.mariadb import MariaDb


def repaired(db: MariaDb, file: Path) -> None:
    """Run a file of repairs as a person would."""
    with db.connect() as connection, connection.cursor() as cursor:
        for line in file.read_text().split(";\n"):
            text = "\n".join(part for part in line.splitlines() if not part.startswith("--"))
            if text.strip():
                cursor.execute(text)
