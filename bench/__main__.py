"""Every benchmark in turn: `python -m bench [--quick] [--corpus FOLDER]`. RESULTS.md says what was seen, how, and on what.

Each is a process of its own. Corpora are read from --corpus (narrow.parquet, …) or made, of the same shape.
--quick takes a tenth of the rows.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path


def commands(quick: bool, corpus: Path | None) -> list[list[str]]:
    """The command lines, without the interpreter."""
    made = ["--corpus", str(corpus)] if corpus else []
    log = ["--corpora", str(corpus)] if corpus else []
    rows = "1000000" if quick else "10000000"
    return [
        ["bench.bench_encode", "narrow", "mixed", "wide", *made],
        ["bench.bench_encode", "narrow", "mixed", "wide", *made, "--protocol", "avro"],
        ["bench.bench_capture", "narrow", "mixed", *made, "--rows", "200000" if quick else "1000000"],
        ["bench.bench_regions", "regions", "--count", "30000" if quick else "300000"],
        ["bench.bench_sockets", "--count", "1000" if quick else "10000"],
        ["bench.bench_regions", "transaction", "--quota-mib", "16" if quick else "64"],
        ["bench.bench_pipeline", "narrow", "mixed", *log, "--rows", "1500000" if quick else "6000000"],
        ["bench.bench_kafka", "narrow", "mixed", *log, "--rows", "400000" if quick else "2000000"],
        ["bench.bench_source", "narrow", "mixed", *made, "--rows", "500000" if quick else "2000000"],
        ["bench.bench_views", "200000" if quick else "1000000"],
        ["bench.bench_canal", "codec", *made],
        ["bench.bench_canal", "server", "--rows", "200000" if quick else "2000000"],
        ["bench.bench_canal", "clients", *(["--active", "20", "--idle", "200", "--rows", "20000"] if quick else [])],
        *(
            ["bench.bench_pump", "write", "--clients", clients, "--bytes", size, "--binlogs", "20000" if quick else "100000"]
            for clients, size in (("32", "200"), ("128", "200"), ("32", "10000"))
        ),
        ["bench.bench_pump", "pull", "--transactions", "40000" if quick else "200000"],
        ["bench.bench_mysql", "inserts", "mixed", "hot", "atomicity", *made, "--rows", "200000" if quick else "1000000"],
        ["bench.bench_mysql", "lag", "--seconds", "20" if quick else "60"],
        ["bench.bench_binlog", "limits", "log", "blackhole", "mysql", "--rows", "100000" if quick else "400000"],
        ["bench.bench_binlog", "large", "--size-mib", "200" if quick else "2040"],
        ["bench.bench_jdbc", "--rows", "300000" if quick else "3000000"],
        ["bench.bench_lake", "delta", "--rows", "200000" if quick else "2000000", "--merge"],
        ["bench.bench_lake", "delta", "iceberg", "--rows", "1000000" if quick else "10000000"],
        ["bench.bench_feeds", *(["--feeds", "50", "--seconds", "10"] if quick else [])],
        ["bench.bench_takeover", *(["--rounds", "1", "--seconds", "10"] if quick else [])],
        ["bench.bench_start", *(["--seconds", "20", "--settled", "10"] if quick else [])],
        ["bench.bench_end_to_end", "catch-up", "--rows", rows],
        ["bench.bench_end_to_end", "live", "--seconds", "20" if quick else "60"],
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--corpus", type=Path)
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}", flush=True)
    failed = 0
    for command in commands(args.quick, args.corpus):
        print("\n$ python -m " + " ".join(command), flush=True)
        failed += subprocess.run([sys.executable, "-m", *command], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
