"""Imports point one way: the layers of docs/how-it-works.md, read from the code's own import statements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import sources

ROOT = Path(__file__).parents[1]

# From the ground up. A room uses those of lower layers, and of its own layer only itself. (room, whether it may do IO)
LAYERS: tuple[tuple[tuple[str, bool], ...], ...] = (
    (("redaction", False), ("visible", False)),
    (("errors", False),),
    (("tso", False), ("extras", False), ("plugins", False), ("logs", True), ("budget", False), ("secret", False)),
    (("events", False), ("records", False), ("statefile", False)),
    (("wire", False), ("tidb", False)),
    (("protocols", False),),
    (("kernels", False),),
    (("process", True),),
    (("credentials", True),),
    (
        *(("changelog", True), ("metrics", True), ("traces", True), ("rules", False)),
        *(("canal.scramble", False), ("canal.frames", False), ("canal.flat", False), ("binlog", False)),
    ),
    (("config", False),),
    (("capture", True), ("registry", True), ("canal.client", True)),
    (("sinks", True), ("binlog.registry", True), ("spark.cluster", True)),
    (("delivery", True), ("binlog.pump", True), ("binlog.client", True), ("binlog.ctl", True)),
    (("consumer", True), ("binlog.drainer", True), ("canal", True), ("canal.conversation", False), ("spark.source", True)),
    (("spark.table", True),),
    (("spark.catalog", True),),
    (("spark", True), ("verify", True), ("canal.server", True), ("binlog.source", True), ("binlog.reparo", True)),
    (("spark.capture", True), ("functions", True), ("diff", True), ("doctor", True), ("views", True)),
    (("changefeed", True),),
    (("server", True), ("playground", True)),
    (("demo", True), ("testing", True)),
    (("cli", True),),
)

IO = {
    "asyncio",
    "grpc",
    "socket",
    "subprocess",
    "requests",
    "httpx",
    "botocore",
    "confluent_kafka",
    "pyspark",
    "threading",
    "tempfile",
    "shutil",
}
"""What a room without IO does not import."""
NOT_PURE = {"random", "secrets"}
"""What neither such a room nor a state machine imports."""

STATE_MACHINES = (
    "capture.tikv.regions.machine",
    "capture.tikv.regions.state",
    "capture.tikv.regions.actions",
    "capture.tikv.regions.reactions",
    "capture.tikv.regions.range_lock",
    "capture.tikv.regions.ranges",
    "capture.groups.scheduler",
    "capture.groups.messages",
    "binlog.client.pumps",
    "binlog.client.attempts",
    "binlog.merge",
    "canal.client.batches",
    "canal.client.conversation",
    "canal.client.session",
    "canal.conversation.machine",
    "canal.conversation.subscriber",
    "canal.conversation.cutting",
    "canal.conversation.fast_cutting",
    "canal.conversation.desk",
    "changefeed.states",
    "delivery.machine.actions",
    "delivery.machine.batch_machine",
    "delivery.machine.events",
    "delivery.machine.failures",
    "delivery.machine.retry",
    "delivery.machine.state",
    "delivery.measure.batch_spans",
    "delivery.plan",
    "server.changefeeds.capture_rules",
    "server.shared.election",
)

PLAIN_WIRE = (
    *("tidemill.wire.canal_entry_pb2", "tidemill.wire.canal_packet_pb2"),
    *("tidemill.wire.binlog_pb2", "tidemill.wire.pump_pb2", "tidemill.wire.slave_binlog_pb2", "tidemill.wire.pb_binlog_pb2"),
)
"""Messages that are a format, also those that a service sends: read and written as bytes, without gRPC."""

KERNEL_CACHE = {"tidemill.kernels.cache", "tidemill.kernels.warm", "tidemill.kernels.compiler.machine"}
"""Where compiled kernels lie is a folder, compiling them asks for the processor, and compiling all takes several processes."""


@pytest.fixture(scope="module", autouse=True)
def trees_are_kept() -> Iterator[None]:
    """Until the last test of this file has looked at them."""
    with sources.kept():
        yield


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in (ROOT / "tidemill").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """What a module imports, wherever in it: modules of ours by their whole name, others as they are written."""
    found: set[str] = set()
    for node in sources.statements(sources.tree(modules()[module])):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules() else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return frozenset(found - {module})


@cache
def room_of(module: str) -> str:
    """The room of the table that a module is in: the longest name that fits."""
    inside = module.removeprefix("tidemill.")
    rooms = [room for layer in LAYERS for room, _ in layer if inside == room or inside.startswith(f"{room}.")]
    return max(rooms, key=len) if rooms else ""


@cache
def height(room: str) -> int:
    """The number of a room's layer."""
    return next(number for number, layer in enumerate(LAYERS) if room in dict(layer))


def ours(module: str) -> Iterator[str]:
    """What a module imports of this package."""
    return (other for other in imports(module) if other.startswith("tidemill."))


def test_every_module_has_a_room() -> None:
    assert [m for m in modules() if m != "tidemill" and not room_of(m)] == []


def test_no_import_goes_up() -> None:
    wrong = []
    for module in modules():
        for other in ours(module):
            here, there = room_of(module), room_of(other)
            if module != "tidemill" and here != there and height(there) >= height(here):
                wrong.append(f"{module} imports {other}")
    assert sorted(wrong) == []


def test_nothing_behind_the_log_knows_its_source() -> None:
    """A log of another source has the same files: what delivers them imports nothing of the capture. `spark.table` reads no log,
    `spark.cluster` starts what writes one, and `spark.capture` is run by a capture."""
    behind = ("delivery", "sinks", "consumer", "spark", "verify")
    wrong = [
        f"{m} imports {o}"
        for m in modules()
        if room_of(m).split(".")[0] in behind and room_of(m) not in ("spark.table", "spark.cluster", "spark.capture")
        for o in ours(m)
        if room_of(o).startswith("capture")
    ]
    assert wrong == []


def test_no_module_is_imported_in_a_circle() -> None:
    """Also none inside one room, lazily or not."""
    state: dict[str, int] = {}
    circles: list[str] = []

    def visit(module: str, path: tuple[str, ...]) -> None:
        state[module] = 1
        for other in ours(module):
            if other not in modules():
                continue
            if state.get(other) == 1:
                circles.append(" → ".join((*path[path.index(other) :], other)))
            elif other not in state:
                visit(other, (*path, other))
        state[module] = 2

    for module in sorted(modules()):
        if module not in state:
            visit(module, (module,))
    assert circles == []


def test_rooms_without_io_import_none() -> None:
    pure = {room for layer in LAYERS for room, io in layer if not io}
    wrong = [
        f"{module} imports {other}"
        for module in modules()
        if room_of(module) in pure and room_of(module) != "wire" and module not in KERNEL_CACHE
        for other in imports(module)
        if other.split(".")[0] in IO | NOT_PURE | {"time"} or (other.startswith("tidemill.wire.") and other not in PLAIN_WIRE)
    ]
    assert sorted(wrong) == []


READS_FILES = {*KERNEL_CACHE, "tidemill.config.file", "tidemill.protocols.common.gotext"}
"""The folder of compiled kernels, the file that a user names, and a table that lies beside its module."""


def asked_of_the_machine(module: str) -> Iterator[str]:
    """Calls that read a clock, a file, the environment or chance, whatever was imported for them."""
    for node in ast.walk(sources.tree(modules()[module])):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            name = called.rpartition(".")[2]
            if name in ("utcnow", "urandom", "uuid1", "uuid4", "getenv") or re.search(r"\bdate(time)?\.(now|today)$", called):
                yield called
            if module not in READS_FILES and (called == "open" or name in ("read_text", "read_bytes", "write_text", "write_bytes")):
                yield called


def test_rooms_without_io_ask_nothing_of_the_machine() -> None:
    pure = {room for layer in LAYERS for room, io in layer if not io} - {"wire"}
    checked = {m for m in modules() if room_of(m) in pure} | {f"tidemill.{name}" for name in STATE_MACHINES}
    assert [f"{module} calls {called}" for module in sorted(checked) for called in asked_of_the_machine(module)] == []


def test_state_machines_are_pure() -> None:
    """Nor is anything that they import, as far as it goes."""
    wrong = []
    for machine in (f"tidemill.{name}" for name in STATE_MACHINES):
        seen, todo = {machine}, [machine]
        while todo:
            module = todo.pop()
            for other in imports(module):
                is_wire = other.startswith("tidemill.wire") and other not in PLAIN_WIRE
                if other.split(".")[0] in IO | NOT_PURE or (module == machine and other == "time") or is_wire:
                    wrong.append(f"{machine} imports {other} by {module}")
                elif other in modules() and other not in seen:
                    seen.add(other)
                    todo.append(other)
    assert sorted(wrong) == []


SAVES = {
    "tidemill.tso": "below a saved ts all is saved",
    "tidemill.delivery.position": "the ts of a saved position",
    "tidemill.changelog.feeds": "a replay: nobody goes on with it",
    "tidemill.changelog.files.bounds": "the log's own start",
    "tidemill.changefeed.feed_folder": "checkpoint.json, feed.json",
    "tidemill.server.feeds": "the start in state.json",
    "tidemill.views.engine": "the state of a view",
    "tidemill.views.definition": "view.json",
}
"""Modules that may say that a position is durable, and by what."""


def test_only_what_is_durable_is_called_saved() -> None:
    """The fence and the log are told saved positions only (`SavedPosition`, `SavedTs`); mypy refuses others. Here: who makes them."""
    saying = {path for path, _ in sources.files("SavedPosition|SavedTs")}
    made = {
        module
        for module, path in modules().items()
        if path in saying
        for node in ast.walk(sources.tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("SavedPosition", "SavedTs")
    }
    assert made == set(SAVES)


DEEPEST = 2
"""Classes of the product in a line of inheritance."""
DECLARED = {
    "config.sections.Section": "how pydantic reads a table of a file; no keys of its own",
    "server.api.bodies.Request": "how pydantic reads a body; no fields of its own",
    "server.api.bodies.PdConfig": "TiCDC's struct that its other structs embed: part of the API's declared bodies",
}
"""Interfaces that neither `Protocol` nor an abstract method shows."""


@cache
def classes() -> dict[str, tuple[ast.ClassDef, tuple[str, ...]]]:
    """Each class of the product by its dotted name, with those that it is built on: ours by their whole name, others as written."""
    nodes: dict[str, ast.ClassDef] = {}
    imported: dict[str, str] = {}
    for module, path in modules().items():
        for node in sources.tree(path).body:
            if isinstance(node, ast.ImportFrom):
                imported.update((f"{module}.{alias.asname or alias.name}", f"{node.module}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.ClassDef):
                nodes[f"{module}.{node.name}"] = node

    def whole(module: str, base: ast.expr) -> str:
        name = f"{module}.{ast.unparse(base).partition('[')[0]}"
        while name in imported:
            name = imported[name]
        return name if name in nodes else ast.unparse(base).partition("[")[0]

    return {name: (node, tuple(whole(name.rpartition(".")[0], base) for base in node.bases)) for name, node in nodes.items()}


def is_interface(name: str) -> bool:
    """Return whether a class declares what others have to be: a Protocol, abstract methods, or one of `DECLARED`."""
    node, bases = classes()[name]
    decorators = [ast.unparse(mark) for child in node.body if isinstance(child, ast.FunctionDef) for mark in child.decorator_list]
    declared = any(base.rpartition(".")[2] == "Protocol" for base in bases) or any(mark.endswith("abstractmethod") for mark in decorators)
    return declared or name.removeprefix("tidemill.") in DECLARED


def lineage(name: str) -> list[str]:
    """Return the longest line of classes from this one to a class that is not ours."""
    return [name, *max((lineage(base) if base in classes() else [base] for base in classes()[name][1]), key=len, default=[])]


def test_inheritance_is_shallow() -> None:
    """What a class takes over from another has to be looked for there: parts of one object that hold each other have names instead."""
    deep = {}
    for name in classes():
        line = lineage(name)
        ours = [ancestor for ancestor in line if ancestor in classes() and not is_interface(ancestor)]
        if len(ours) > DEEPEST and not line[-1].endswith(("Exception", "Error")):
            deep[name] = ours
    assert deep == {}
    assert all(f"tidemill.{name}" in classes() for name in DECLARED)


def test_every_room_says_what_it_is() -> None:
    silent = [name for name, path in modules().items() if path.stem == "__init__" and not ast.get_docstring(sources.tree(path))]
    assert sorted(silent) == []


def test_every_room_says_what_comes_in_what_goes_out_and_what_to_read_first() -> None:
    wrong = []
    for name, path in modules().items():
        if path.stem == "__init__" and name not in ("tidemill", "tidemill.wire"):
            text = ast.get_docstring(sources.tree(path)) or ""
            wrong += [f"{name}: {word}" for word in (r"\bIn: ", r"\bOut: ", r"\b[Rr]ead\s+(`|its)") if not re.search(word, text)]
    assert sorted(wrong) == []


def test_the_page_draws_these_layers() -> None:
    page = (ROOT / "docs/how-it-works.md").read_text(encoding="utf-8")
    for layer in LAYERS:
        for room, _ in layer:
            assert f"`{room}`" in page, f"docs/how-it-works.md does not name `{room}`"


WHOLE = {"chaos", "golden", "integration", "realcdc", "realpd", "simulate", "soak", "support"}
"""Folders of tests that test no single room: whole programs, material and helpers."""
OUTSIDE = {"bench", "deploy", "docs", "examples"}
"""Those whose subject stands beside the package."""
PARTS = {Path("capture/tables"), Path("delivery/sinks")}
"""A part of a room's tests, by subject: which tables a capture has, and deliveries into each kind of sink."""


PUBLISHING = {"sinks.publication", "sinks.storage.store"}
"""The only modules that place a staged file or replace a file of a sink's store."""
COMPARING = {"sinks.lake.driver.progress", "sinks.lake.driver.dropped", "sinks.lake.manifest", *PUBLISHING}
"""Those that change a note of a store by what it says now."""
BOOKS = {"sinks.mysql.bookkeeping", "sinks.mysql.ddls.plans"}
"""Those that write the tables by which drivers of a database know each other."""
READING_BOOKS = {"sinks.mysql.known", "sinks.mysql.ddls.state"}
"""Those that only read them, or name them to a person."""
_BOOK = re.compile(r"tidemill_(?:feed|lane|plan|ddl)_v1")


def calls_of(module: str) -> set[str]:
    """The names of the methods that a module calls."""
    tree = sources.tree(modules()[f"tidemill.{module}"])
    return {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}


def test_a_sink_publishes_through_the_protocol_alone() -> None:
    """A driver that another one has replaced can undo nothing only if no sink goes around `sinks/publication.py`, the books of a database,
    or the versions of a lake's tables."""
    sinks = [name.removeprefix("tidemill.") for name in modules() if name.startswith("tidemill.sinks.")]
    stores = [name for name in sinks if not name.startswith(("sinks.kafka", "sinks.canal"))]  # Kafka has no store, Canal's is its own
    assert [name for name in stores if calls_of(name) & {"shared_file", "swap", "move"} and name not in PUBLISHING] == []
    assert [name for name in stores if "change" in calls_of(name) and name not in COMPARING] == []
    books = [name for name in sinks if _BOOK.search(modules()[f"tidemill.{name}"].read_text(encoding="utf-8"))]
    assert sorted(books) == sorted(BOOKS | READING_BOOKS)
    assert not any(re.search(r"INSERT|REPLACE|UPDATE|DELETE", modules()[f"tidemill.{name}"].read_text()) for name in {"sinks.mysql.known"})


def test_the_folders_of_tests_mirror_the_rooms() -> None:
    here = Path(__file__).parent
    folders = {path.parent.relative_to(here) for path in here.rglob("test_*.py")} - {Path()}
    rooms = [folder for folder in folders if folder.parts[0] not in WHOLE | OUTSIDE]
    assert [folder for folder in sorted(set(rooms) - PARTS) if not (ROOT / "tidemill" / folder).is_dir()] == []
    assert [folder for folder in OUTSIDE if not (ROOT / folder).is_dir()] == []


def test_no_test_imports_another() -> None:
    """What two need is in tests/support, or in the conftest of their folder."""
    wrong = []
    for path, text in sources.files(r"from\s+tests\.(\w+\.)*test_", Path(__file__).parent):
        for node in sources.statements(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and re.match(r"tests\.(.+\.)?test_", node.module or ""):
                wrong.append(f"{path.name} imports {node.module}")
    assert sorted(wrong) == []


def test_the_files_that_begin_first_are_there() -> None:
    from tests.conftest import LONGEST

    assert [name for name in LONGEST if not (Path(__file__).parent / name).is_file()] == []
