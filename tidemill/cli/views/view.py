"""`tidemill view`: create views of captured tables, keep them up to date, look at them, drop them."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidemill import logs, tso
from tidemill.cli.shared.options import JsonOption, LogLevelOption, Output, OutputOption, StatusAddrOption, form
from tidemill.cli.shared.terminal import add_row, console, echo
from tidemill.errors import ConfigError, TidemillError, redact

if TYPE_CHECKING:
    from tidemill.metrics.pages import Page
    from tidemill.views import View

app = typer.Typer(help="Queries over captured tables that are kept up to date.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The view's name.")]
DirOption = Annotated[Path, typer.Option("--dir", envvar="TIDEMILL_VIEWS", help="The folder of the views.")]
LogOption = Annotated[str, typer.Option("--log", help="The change log with the tables.")]
SqlOption = Annotated[str | None, typer.Option("--sql", help="A SELECT in Spark's words, over DATABASE.TABLE.")]
FileOption = Annotated[Path | None, typer.Option("--sql-file", help="Instead of --sql: a file with it.")]
DatabaseOption = Annotated[str, typer.Option("--database", help="The database of tables that are named without one.")]
DEFAULT_DIR = Path("views")


@app.callback()
def _view() -> None:
    """Queries over captured tables that are kept up to date."""


@app.command("create")
def create(
    name: NameArgument,
    log: LogOption,
    into: Annotated[str, typer.Option("--into", help="Where its rows go: delta:///FOLDER, kafka://…/TOPIC, mysql://…, memory.")],
    sql: SqlOption = None,
    sql_file: FileOption = None,
    database: DatabaseOption = "",
    folder: DirOption = DEFAULT_DIR,
) -> None:
    """Create a view, and say how it will be kept. `tidemill view run` keeps it."""
    from tidemill import views
    from tidemill.views.explain import text_of

    made = views.create(views.Views(folder), name, log, _query(sql, sql_file), into, database)
    echo(text_of(made.plan()))
    echo(f"\nview {name} is created; it begins at {tso.describe(made.begin_ts)}. `tidemill view run {name}` keeps it up to date")


@app.command("explain")
def explain(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A view that is there. Without it: --log and --sql.")] = None,
    log: Annotated[str | None, typer.Option("--log", help="The change log with the tables.")] = None,
    sql: SqlOption = None,
    sql_file: FileOption = None,
    database: DatabaseOption = "",
    folder: DirOption = DEFAULT_DIR,
) -> None:
    """Say how a query would be kept, step by step, and what is computed again. Nothing is created."""
    from tidemill.views import Views
    from tidemill.views.explain import text_of
    from tidemill.views.view import planned

    if (name is None) == (log is None):
        raise ConfigError("explain takes the name of a view, or --log with --sql")
    if name is not None:
        echo(text_of(Views(folder).read(name).plan()))
        return
    assert log is not None
    found = planned(log, _query(sql, sql_file), database)
    echo(text_of(found.plan))
    begin = found.begin
    echo(f"it would begin at {tso.describe(begin.ts)}{', with the tables of an initial load' if begin.snapshot else ''}")


@app.command("list")
def list_(folder: DirOption = DEFAULT_DIR, output: OutputOption = Output.TEXT, as_json: JsonOption = False) -> None:
    """List the views, with how far each is."""
    from tidemill.views import Views
    from tidemill.views.definition import shown

    kept = Views(folder)
    found = []
    for name in kept.names():
        progress = kept.progress(name)
        found.append({**shown(kept.read(name)), "resolved_ts": progress.resolved_ts if progress is not None else None})
    if form(output, as_json) is Output.JSON:
        echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    table = Table("NAME", "RESOLVED TS", "INTO", "TABLES", box=None, pad_edge=False)
    for one in found:
        ts = one["resolved_ts"]
        tables = one["tables"]
        assert isinstance(tables, list)
        add_row(table, (one["name"], tso.describe(ts) if isinstance(ts, int) else "never ran", one["into"], ", ".join(tables)))
    console().print(table)


@app.command("show")
def show(name: NameArgument, folder: DirOption = DEFAULT_DIR, output: OutputOption = Output.TEXT, as_json: JsonOption = False) -> None:
    """Show a view: its query, where it goes, how far it is, and how it is kept."""
    from tidemill.views import Views
    from tidemill.views.definition import shown
    from tidemill.views.explain import explained, text_of

    kept = Views(folder)
    view, progress = kept.read(name), kept.progress(name)
    plan = view.plan()
    if form(output, as_json) is Output.JSON:
        steps = [{"depth": one.depth, "step": one.what, "how": one.how, "incremental": one.incremental} for one in explained(plan)]
        resolved = progress.resolved_ts if progress is not None else None
        echo(json.dumps({**shown(view), "resolved_ts": resolved, "steps": steps}, indent=2, ensure_ascii=False))
        return
    for label, value in shown(view).items():
        echo(f"{label}: {', '.join(value) if isinstance(value, list) else value}")
    echo(f"resolved ts: {tso.describe(progress.resolved_ts) if progress is not None else 'it never ran'}")
    echo(f"\n{text_of(plan)}")


@app.command("run")
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="The views. Without any: all.")] = None,
    folder: DirOption = DEFAULT_DIR,
    interval: Annotated[float, typer.Option("--interval", help="Seconds from one interval to the next (0.05 to 3600).")] = 1.0,
    until: Annotated[str | None, typer.Option("--target-ts", help='End there: a TSO, RFC 3339, or "now": where the log is.')] = None,
    threads: Annotated[int, typer.Option("--threads", help="Threads of the engine, for each view.")] = 1,
    status_addr: StatusAddrOption = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Keep views up to date, until stopped. It may be killed at any time and goes on where it stopped.

    Ctrl-C or SIGTERM ends it after the interval that runs.
    """
    from tidemill.views import View, Views

    if not 0.05 <= interval <= 3600 or threads < 1:
        raise ConfigError("--interval is from 0.05 to 3600 seconds, --threads above 0")
    logs.setup(log_level, part="view")
    kept = Views(folder)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    chosen = names or kept.names()
    if not chosen:
        raise ConfigError(f"there is no view in {folder}", hint="`tidemill view create` makes one; --dir names the folder.")
    with ExitStack() as stack:
        views = [stack.enter_context(View(kept, name, threads=threads)) for name in dict.fromkeys(chosen)]
        if status_addr is not None:
            from tidemill.cli.shared.served import served

            stack.enter_context(served(status_addr, watched(views)))
        _run_all(views, stop, interval, until)


def watched(views: list[View]) -> dict[str, Page]:
    """The pages of views that run. Their error messages may hold addresses with passwords."""
    from tidemill.metrics.pages import json_page
    from tidemill.metrics.samples import metrics_page
    from tidemill.views.figures import samples

    def status() -> dict[str, Any]:
        told = {one.name: one.figures.status(time.time()) for one in views}
        return {name: {**one, "away": redact(one["away"])} for name, one in told.items()}

    metrics = metrics_page(lambda: samples([one.figures for one in views], time.time()))
    return {"/status": json_page(status), "/metrics": metrics}


def _run_all(views: list[View], stop: threading.Event, interval: float, until: str | None) -> None:
    """Run each view in a thread. The first error ends all."""
    failed: list[TidemillError] = []

    def keep(view: View) -> None:
        try:
            goal = None if until is None else view.log_ts() if until == "now" else tso.parse(until)
            view.run(stop, interval_s=interval, until_ts=goal)
            echo(f"view {view.name} is at {tso.describe(view.resolved_ts)}")
        except TidemillError as error:
            failed.append(error)
            stop.set()

    threads = [threading.Thread(target=keep, args=(view,), name=f"view {view.name}") for view in views]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    if failed:
        raise failed[0]


@app.command("read")
def read(name: NameArgument, folder: DirOption = DEFAULT_DIR) -> None:
    """Print the rows of a view into memory, as JSON, one a line. The view does not run meanwhile."""
    from tidemill.views import View

    with View(folder, name) as view:
        echo(f"resolved ts {tso.describe(view.resolved_ts)}", err=True)
        for row in view.read().to_pylist():
            echo(json.dumps(row, default=str, ensure_ascii=False))


@app.command("drop")
def drop(
    name: NameArgument,
    folder: DirOption = DEFAULT_DIR,
    keep: Annotated[bool, typer.Option("--keep-target", help="Leave what the view delivered where it is.")] = False,
) -> None:
    """Drop a view: its state, and what it delivered. The log keeps no changes for it any more."""
    from tidemill import views

    kept = views.Views(folder)
    into = redact(kept.read(name).into)
    views.drop(kept, name, keep_target=keep)
    echo(f"view {name} is dropped" + (f"; what it delivered stays in {into}" if keep and into != "memory" else ""))


def _query(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise ConfigError("the query is given by one of --sql and --sql-file")
    if sql is not None:
        return sql
    assert file is not None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--sql-file {file} cannot be read: {error}") from None
