"""Every benchmark in turn, and one page of what they saw: `python -m bench [--quick] [--corpus FOLDER] [--only NAME …] [--page FILE]`.

Each is a process of its own. Corpora are read from --corpus (narrow.parquet, …) or made, of the same shape. --quick takes a tenth of the
rows. The page has each stage beside the machine's own limit of the same run, curves of growth, and, with --before FILE (the figures of an
earlier run), what changed. --of makes the page of figures that runs have left, --plots writes its curves as files too. RESULTS.md says what
was seen, how, and on what.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.report.figures import MEMORY, PLACE, Figure, NotFigures, read
from bench.report.page import Run, curves, page

PAGE = Path("bench-page.html")


def commands(quick: bool, corpus: Path | None) -> list[list[str]]:
    """The command lines, without the interpreter."""
    made = ["--corpus", str(corpus)] if corpus else []
    few = ["--rows", "10000", "--runs", "2"] if quick else []
    log = ["--corpora", str(corpus)] if corpus else []
    rows = "1000000" if quick else "10000000"
    memory = ["--work", str(MEMORY)] if MEMORY.is_dir() and not quick else []
    return [
        *(["bench.bench_encode", "narrow", "mixed", "wide", *made, *few, "--protocol", protocol] for protocol in PROTOCOLS),
        ["bench.bench_capture", "narrow", "mixed", *made, "--rows", "100000" if quick else "1000000"],
        *(
            [["bench.bench_capture", "narrow", "mixed", *made, "--rows", "1000000", "--shapes", "live1/64", "live10/64", *memory]]
            if memory
            else []
        ),
        ["bench.bench_regions", "regions", "--count", "30000" if quick else "300000"],
        ["bench.bench_regions", "tables", "--count", "10000" if quick else "100000"],
        ["bench.bench_sockets", "--count", "1000" if quick else "10000"],
        ["bench.bench_regions", "transaction", *(["--quota-mib", "16", "--times", "10"] if quick else [])],
        ["bench.bench_pipeline", "narrow", "mixed", *log, "--rows", "1500000" if quick else "6000000"],
        ["bench.bench_kafka", "narrow", "mixed", *log, "--rows", "400000" if quick else "2000000"],
        ["bench.bench_growth", *(["--most", "100000"] if quick else [])],
        ["bench.bench_month", *(["--days", "0.25"] if quick else [])],
        ["bench.bench_executors", *(["--rows", "200000"] if quick else [])],
        ["bench.bench_source", "narrow", *made, "--rows", "500000" if quick else "7700000"],
        ["bench.bench_source", "mixed", *made, "--rows", "500000" if quick else "2000000"],
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
        ["bench.bench_feeds", "idle", "busy", "create", *(["--feeds", "50", "--seconds", "10"] if quick else [])],
        ["bench.bench_takeover", *(["--rounds", "1", "--seconds", "10"] if quick else [])],
        ["bench.bench_start", *(["--seconds", "8", "--settled", "4"] if quick else [])],
        ["bench.bench_end_to_end", "catch-up", "--rows", rows],
        *([["bench.bench_end_to_end", "catch-up", "--rows", rows, *memory]] if memory else []),
        ["bench.bench_end_to_end", "live", "--resolved", "0.2", "--seconds", "20" if quick else "60"],
        ["bench.bench_soak", *(["--minutes", "0.5", "--every", "5"] if quick else [])],
    ]


PROTOCOLS = ("open", "avro", "avro-strings", "canal-json", "canal", "simple", "csv", "debezium", "debezium-avro")


def machine() -> list[str]:
    """Lines that say where and when."""
    load = f"load {os.getloadavg()[0]:.1f} at the start"
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} cores, {load}",
        f"Python {platform.python_version()}, {platform.system()} {platform.release()}",
    ]


def run(lines: Sequence[Sequence[str]], figures: Path) -> Iterator[str]:
    """Run each command, its figures into a file. Yields those that do not end well."""
    for line in lines:
        said = "python -m " + " ".join(line)
        print(f"\n$ {said}", flush=True)
        if subprocess.run([sys.executable, "-m", *line], env={**os.environ, PLACE: str(figures)}, check=False).returncode:
            yield said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="of benchmarks: encode, capture, growth, …")
    parser.add_argument("--page", type=Path, default=PAGE, help=f"where the page goes ({PAGE}); its figures go beside it, as .jsonl")
    parser.add_argument("--before", type=Path, help="figures of an earlier run")
    parser.add_argument("--of", type=Path, nargs="+", metavar="FILE", help="run nothing: the page of figures that were taken before")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="each curve as an SVG file too")
    args = parser.parse_args()
    try:
        before = read(args.before) if args.before else []
        taken = [figure for file in args.of or () for figure in read(file)]
    except (NotFigures, OSError) as e:
        parser.error(str(e))
    if args.of:
        return show(Run(taken, [f"Figures of {', '.join(file.name for file in args.of)}"]), before, args.page, args.plots)
    chosen = [line for line in commands(args.quick, args.corpus) if not args.only or line[0].removeprefix("bench.bench_") in args.only]
    if not chosen:
        parser.error(f"no benchmark is called {' or '.join(args.only)}")
    lines, figures = machine(), args.page.with_suffix(".jsonl")
    figures.write_text("", encoding="utf-8")
    print(*lines, sep="\n", flush=True)
    failed = list(run(chosen, figures))
    print(f"\nthe figures are in {figures}")
    return show(Run(read(figures), lines, failed), before, args.page, args.plots)


def show(seen: Run, before: Sequence[Figure], place: Path, plots: Path | None) -> int:
    """Write the page, and the curves if wanted. Returns how many benchmarks failed."""
    place.write_text(page(seen, before), encoding="utf-8")
    for name, svg in curves(seen.figures).items() if plots else ():
        assert plots is not None
        plots.mkdir(parents=True, exist_ok=True)
        (plots / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")
    print(f"{place} is the page")
    return len(seen.failed)


if __name__ == "__main__":
    sys.exit(main())
