"""`python -m tests.support.rows.read_row COLUMNS < HEX`: a row value through every kernel that reads rows; all have to refuse it by name.

The table has an INT as its clustered key, which is not in the row, and so many BLOB columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from tests.support.schema.tables import column, table
from tidemill.errors import MalformedRow
from tidemill.kernels.avro import AvroRowEncoder
from tidemill.kernels.canal_json import CanalJsonRowEncoder
from tidemill.kernels.csv import CsvRowEncoder
from tidemill.kernels.open.encoder import OpenRowEncoder
from tidemill.kernels.routing.identity import KeyHash, unique_change
from tidemill.kernels.rows.mount import MountEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.rows.views import RawRecord, row_array
from tidemill.kernels.simple import SimpleRowEncoder
from tidemill.protocols.options import EncodingOptions, MessageFormat
from tidemill.tidb.codec import encode_int
from tidemill.tidb.datums import DatumFlag
from tidemill.tidb.keys import record_key
from tidemill.tidb.schema.codes import MySQLType


def main(columns: int, value: bytes) -> None:
    """Print the name of each reader before it runs, so that the last name tells which one crashed."""
    blobs = [column(MySQLType.BLOB, name=f"{'az'[i % 2]}{i}") for i in range(columns)]
    program = TableProgram("s", "t", table([column(MySQLType.LONG, name="id"), *blobs], key=[0]))
    key = record_key(100, bytes([DatumFlag.INT]) + encode_int(1))
    rows, _keep = row_array([RawRecord(key, value, value + b"", 1, 2, 0)])
    groups = np.array([0, 1], np.int32)

    def options(protocol: MessageFormat) -> EncodingOptions:
        return EncodingOptions(protocol, max_message_bytes=1 << 30)

    encoders = [
        OpenRowEncoder([program], options(MessageFormat.OPEN)),
        MountEncoder([program]),
        AvroRowEncoder([program], options(MessageFormat.AVRO), [(1, 2)]),
        CanalJsonRowEncoder([program], options(MessageFormat.CANAL_JSON), clock=lambda: 0),
        CsvRowEncoder([program], options(MessageFormat.CSV)),
        SimpleRowEncoder([program], options(MessageFormat.SIMPLE), clock=lambda: 0),
    ]
    works: dict[str, Callable[[], object]] = {type(e).__name__: lambda e=e: e.encode(rows, groups) for e in encoders}  # type: ignore[misc]
    works["unique_change"] = lambda: unique_change([program]).changed(rows)
    works["KeyHash"] = lambda: KeyHash([program], [[c.name for c in program.columns]]).hash(rows)
    for name, work in works.items():
        print(name, flush=True)
        try:
            work()
        except MalformedRow:
            continue
        raise SystemExit("the row was read")


if __name__ == "__main__":
    main(int(sys.argv[1]), bytes.fromhex(sys.stdin.read()))
