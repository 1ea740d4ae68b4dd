"""ALTER TABLE and ALTER DATABASE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.tidb.ddltext.column_types import charset_text, equals, if_exists, if_not_exists, part_if_exists, part_if_not_exists, special
from tidemill.tidb.ddltext.columns import column_definition, table_elements
from tidemill.tidb.ddltext.constraints import after_blank, at_constraint, split_regions, table_constraint, visibility
from tidemill.tidb.ddltext.dialects import Part
from tidemill.tidb.ddltext.options import accept_partition_option, database_options, table_options, tiflash_replica, with_ttl_off, word_of
from tidemill.tidb.ddltext.partitions import expression_in_parentheses, partition_by, partition_definitions
from tidemill.tidb.ddltext.queries.expressions import parse_expression
from tidemill.tidb.ddltext.queries.parser import Parser, Shape
from tidemill.tidb.names import quote_name

# These follow the specification before them without a comma.
_WITHOUT_COMMA = ("PARTITION BY ", "REMOVE PARTITIONING", "IMPORT TABLESPACE", "DISCARD TABLESPACE")

# A specification that starts with one of these may follow the list without a comma.
_LAST_SPECS = frozenset(("PARTITION", "REMOVE", "REORGANIZE", "SPLIT", "MERGE"))


_FIXED: dict[str, Part | None] = {
    "DISABLE KEYS": None,
    "ENABLE KEYS": None,
    "WITH VALIDATION": Part.WITHOUT_VALIDATION,
    "WITHOUT VALIDATION": Part.WITHOUT_VALIDATION,
    "SECONDARY_LOAD": Part.TIDB_SPEC,
    "SECONDARY_UNLOAD": Part.TIDB_SPEC,
    "CACHE": Part.TIDB_SPEC,
    "NOCACHE": Part.TIDB_SPEC,
    "READ WRITE": Part.TIDB_SPEC,
    "READ ONLY": Part.TIDB_SPEC,
    "IMPORT TABLESPACE": None,
    "DISCARD TABLESPACE": None,
}
"""Specifications of fixed words."""

_RESTRICTED = ("INSERT_INTO_SELECT", "UPDATE_SELECT", "DELETE_SELECT", "CTAS")
"""What a masking policy may keep users from, in TiDB's order."""


@dataclass(frozen=True, slots=True)
class AlterSpec:
    """A specification of ALTER TABLE as it is printed. Some are not printed."""

    text: str
    printed: bool = True
    only_placement: bool = False  # the placement of one partition


# Statements


def alter_database(p: Parser) -> str:
    start = p.index
    options = database_options(p)
    if options:
        schema = p.names.schema("")
        name = f" {quote_name(schema)}" if schema else ""
    else:
        p.index = start
        name = f" {p.schema_name()}"
        options = database_options(p)
    if not options:
        raise p.fail("an option")
    if not any(options):  # only placement, which is left out
        return ""
    return f"ALTER DATABASE{name}" + "".join(f" {option}" for option in options)


def alter_table(p: Parser) -> str:
    """Parse ALTER TABLE. Specifications that only concern placement or attributes are left out.

    A statement with only the placement of partitions, or without any specification, gives an empty text.
    """
    head = f"ALTER TABLE {p.table_name()}"
    specs: list[AlterSpec] = []
    while not p.at_end() and not p.at(";"):
        last = p.at_any(_LAST_SPECS)
        specs.append(_alter_spec(p))
        if last:
            break
        if p.accept(","):
            if p.at_any(_LAST_SPECS) or p.at_end():
                raise p.fail("another specification after the comma")
        elif not p.at_any(_LAST_SPECS):
            break
    if all(spec.only_placement for spec in specs) or (p.dialect.exact and not any(spec.printed for spec in specs)):
        return ""
    text = head
    for number, spec in enumerate(spec for spec in specs if spec.printed):
        text += (" " if not number or spec.text.startswith(_WITHOUT_COMMA) else ", ") + spec.text
    return text


# Specifications


def _alter_spec(p: Parser) -> AlterSpec:
    verbs: dict[str, Callable[[Parser], str]] = {
        "ADD": _alter_add,
        "DROP": _alter_drop,
        "MODIFY": _alter_modify,
        "CHANGE": _alter_change,
        "ALTER": _alter_alter,
        "RENAME": _alter_rename,
        "REMOVE": _alter_remove,
        "REORGANIZE": _alter_reorganize,
        "CONVERT": _alter_convert,
        "EXCHANGE": _alter_exchange,
        "ORDER": _alter_order,
    }
    if p.token.upper in verbs:
        text = verbs[p.token.upper](p)
        return AlterSpec(text, printed=text != "")
    if p.at("PARTITION"):
        return AlterSpec(partition_by(p)) if p.peek().upper == "BY" else _alter_one_partition(p)
    start = p.index
    if (simple := _accept_simple_spec(p)) or p.index > start:
        return AlterSpec(simple, printed=simple != "")
    if p.at("ATTRIBUTES"):
        _attributes(p)
        return AlterSpec("", printed=False)
    if p.at("STATS_OPTIONS"):
        text = p.dialect.part(Part.TIDB_SPEC, _attributes(p))
        return AlterSpec(text, printed=text != "")
    return _option_spec(p)


def _accept_simple_spec(p: Parser) -> str:
    """Parse a specification of a few words. Returns nothing for another one, which stays, and for one that the dialect leaves out."""
    for words, part in _FIXED.items():
        if p.accept(*words.split()):
            return words if part is None else p.dialect.part(part, words)
    if p.at_any(("ENABLE", "DISABLE")) and p.accept_any(("ENABLE", "DISABLE")):
        return _masking_policy(p, p.tokens[p.index - 1].upper)
    if p.at("FORCE") and p.peek().upper not in ("AUTO_INCREMENT", "AUTO_RANDOM_BASE"):
        p.next()
        return "FORCE" + ("" if p.dialect.exact else " /* AlterTableForce is not supported */ ")
    if p.accept("ALGORITHM"):
        equals(p)
        return p.dialect.part(Part.ALGORITHM, f"ALGORITHM = {word_of(p, ('DEFAULT', 'COPY', 'INPLACE', 'INSTANT'))}")
    if p.accept("LOCK"):
        equals(p)
        return p.dialect.part(Part.ALGORITHM, f"LOCK = {word_of(p, ('DEFAULT', 'NONE', 'SHARED', 'EXCLUSIVE'))}")
    if p.accept("SET", "TIFLASH", "REPLICA") or p.accept("SET", "HYPO", "TIFLASH", "REPLICA"):
        return p.dialect.part(Part.TIFLASH_REPLICA, f"SET TIFLASH REPLICA {tiflash_replica(p)}")
    return _accept_interval_spec(p) or _accept_partition_action(p)


def _accept_interval_spec(p: Parser) -> str:
    """Parse a specification that moves the bounds of a table with INTERVAL partitions."""
    text = ""
    for edge in ("FIRST", "LAST"):
        if p.accept(edge, "PARTITION", "LESS", "THAN"):
            bound = expression_in_parentheses(p)
            suffix = _no_write_to_binlog(p) if edge == "LAST" else if_exists(p) and ""
            text = f"{edge} PARTITION LESS THAN {bound}{suffix}"
    for words in ("SPLIT MAXVALUE PARTITION", "MERGE FIRST PARTITION"):
        if p.accept(*words.split(), "LESS", "THAN"):
            text = f"{words} LESS THAN {expression_in_parentheses(p)}"
    if text:
        return p.dialect.part(Part.INTERVAL_PARTITIONS, text)
    return split_regions(p) if p.at("SPLIT") else ""


def _no_write_to_binlog(p: Parser) -> str:
    return " NO_WRITE_TO_BINLOG" if p.accept_any(("NO_WRITE_TO_BINLOG", "LOCAL")) else ""


def _accept_partition_action(p: Parser) -> str:
    for action in ("CHECK", "TRUNCATE"):
        if p.accept(action, "PARTITION"):
            return f"{action} PARTITION {_all_or_names(p)}"
    for action in ("OPTIMIZE", "REPAIR", "REBUILD"):
        if p.accept(action, "PARTITION"):
            return f"{action} PARTITION{_no_write_to_binlog(p)} {_all_or_names(p)}"
    for action in ("IMPORT", "DISCARD"):
        if p.accept(action, "PARTITION"):
            names = _all_or_names(p)
            p.expect("TABLESPACE")
            return f"{action} PARTITION {names} TABLESPACE"
    if p.accept("COALESCE", "PARTITION"):
        return f"COALESCE PARTITION{_no_write_to_binlog(p)} {p.unsigned()}"
    return ""


def _all_or_names(p: Parser) -> str:
    return "ALL" if p.accept("ALL") else _partition_names(p)


def _partition_names(p: Parser) -> str:
    return p.list_of(p.name, ",")


def _option_spec(p: Parser) -> AlterSpec:
    written = table_options(p, commas=False)
    if not written:
        raise p.fail("a specification of ALTER TABLE")
    options = with_ttl_off(written)
    if not options or all(option.kind == "PLACEMENT POLICY" for option in written):
        return AlterSpec("", printed=False)
    if p.dialect.exact and not any(option.text for option in options):
        return AlterSpec("", printed=False)
    if [option.kind for option in options] == ["CHARACTER SET", "COLLATE"]:
        return AlterSpec(f"CHARACTER SET {options[0].value.upper()} COLLATE {options[1].value.upper()}")
    if all(option.kind == "PLACEMENT POLICY" for option in options):
        return AlterSpec("")
    return AlterSpec(" ".join(option.text for option in options if option.text or not p.dialect.exact))


def _alter_convert(p: Parser) -> str:
    p.expect("CONVERT", "TO")
    if not p.accept_charset_keyword():
        raise p.fail("CHARACTER SET")
    charset = "DEFAULT" if p.accept("DEFAULT") else charset_text(p, p.charset_name())
    text = f"CONVERT TO CHARACTER SET {charset}"
    return f"{text} COLLATE {p.collation_name().upper()}" if p.accept("COLLATE") else text


def _attributes(p: Parser) -> str:
    word = p.next().upper
    equals(p)
    return f"{word}={'DEFAULT' if p.accept('DEFAULT') else p.text()}"


def _alter_add(p: Parser) -> str:
    p.expect("ADD")
    if p.accept("PARTITION"):
        return _add_partition(p)
    if p.accept("STATS_EXTENDED"):
        text = f"ADD STATS_EXTENDED {if_not_exists(p)}{p.name()}"
        kind = p.expect_any(("CARDINALITY", "DEPENDENCY", "CORRELATION"))
        return p.dialect.part(Part.TIDB_SPEC, f"{text} {kind}{p.in_parentheses(p.column_name)}")
    if p.at("MASKING", "POLICY"):
        return _masking_policy(p, "ADD")
    if at_constraint(p):
        constraint = table_constraint(p)
        return f"ADD {constraint}" if constraint else ""
    p.accept("COLUMN")
    head = f"ADD COLUMN {part_if_not_exists(p)}"
    if p.at("("):
        columns, constraints = table_elements(p)
        return f"{head}({', '.join(columns + constraints)})"
    return f"{head}{column_definition(p)}{_column_position(p)}"


def _column_position(p: Parser) -> str:
    if p.accept("FIRST"):
        return " FIRST"
    return f" AFTER {p.column_name()}" if p.accept("AFTER") else ""


def _add_partition(p: Parser) -> str:
    exists = f" {part_if_not_exists(p)}".rstrip()
    text = f"ADD PARTITION{exists}{_no_write_to_binlog(p)}"
    if p.accept("PARTITIONS"):
        number = p.unsigned()
        return f"{text} PARTITIONS {number}" if number else text
    return text + (partition_definitions(p, ", ")[0] if p.at("(") else "")


def _alter_drop(p: Parser) -> str:
    p.expect("DROP")
    if p.accept("PRIMARY", "KEY"):
        return "DROP PRIMARY KEY"
    if p.accept("FOREIGN", "KEY"):
        return f"DROP FOREIGN KEY {p.name()}"
    if p.accept_any(("KEY", "INDEX")):
        exists = part_if_exists(p)
        return of_index(p, f"DROP INDEX {exists}", "")
    if p.accept("PARTITION"):
        return f"DROP PARTITION {part_if_exists(p)}{_partition_names(p)}"
    if p.accept("STATS_EXTENDED"):
        return p.dialect.part(Part.TIDB_SPEC, f"DROP STATS_EXTENDED {if_exists(p)}{p.name()}")
    if p.at("MASKING", "POLICY"):
        return _masking_policy(p, "DROP")
    if p.accept_any(("CHECK", "CONSTRAINT")):
        return f"{p.dialect.part(Part.DROP_CHECK, 'DROP CHECK')} {p.name()}"
    p.accept("COLUMN")
    text = f"DROP COLUMN {part_if_exists(p)}{p.column_name()}"
    p.accept_any(("RESTRICT", "CASCADE"))
    return text


def _alter_modify(p: Parser) -> str:
    p.expect("MODIFY")
    if p.at("MASKING", "POLICY"):
        return _masking_policy(p, "MODIFY")
    p.accept("COLUMN")
    return f"MODIFY COLUMN {part_if_exists(p)}{column_definition(p)}{_column_position(p)}"


def of_index(p: Parser, head: str, tail: str) -> str:
    """Parse the name of an index that the statement changes. Returns the specification, nothing if the database lacks the index."""
    name = p.identifier()
    text = f"{head}{quote_name(name)}{tail}"
    return text if p.dialect.index(name) else p.dialect.part(Part.MISSING_INDEX, text)


def _masking_policy(p: Parser, verb: str) -> str:
    """Parse what follows the verb: a policy by which TiDB shows values to users."""
    p.expect("MASKING", "POLICY")
    text = f"{verb} MASKING POLICY {p.name()}"
    if verb == "ADD":
        p.expect("ON")
        text += f" ON {p.in_parentheses(p.column_name)}{policy_definition(p)}"
    elif verb == "MODIFY" and p.accept("SET", "EXPRESSION"):
        p.expect("=")
        text += f" SET EXPRESSION = {p.expression()}"
    elif verb == "MODIFY":
        p.expect("SET")
        text += f" SET {_policy_restriction(p)}"
    return p.dialect.part(Part.TIDB_SPEC, text)


def policy_definition(p: Parser) -> str:
    p.expect("AS")
    text = f" AS {p.expression()}"
    if p.at("RESTRICT"):
        restriction = _policy_restriction(p)
        text += "" if restriction.endswith(" NONE") else f" {restriction}"
    state = p.accept_any(("ENABLE", "DISABLE"))
    return f"{text} {state}" if state else text


def _policy_restriction(p: Parser) -> str:
    p.expect("RESTRICT", "ON")
    if p.accept("NONE"):
        return "RESTRICT ON NONE"
    written: set[str] = set()

    def operation() -> str:
        written.add(p.identifier().upper())
        return ""

    p.in_parentheses(operation)
    if not written <= set(_RESTRICTED):
        raise p.fail("one of " + ", ".join(_RESTRICTED))
    return f"RESTRICT ON ({', '.join(word for word in _RESTRICTED if word in written)})"


def _alter_change(p: Parser) -> str:
    p.expect("CHANGE")
    p.accept("COLUMN")
    return f"CHANGE COLUMN {part_if_exists(p)}{p.column_name()} {column_definition(p)}{_column_position(p)}"


def _alter_alter(p: Parser) -> str:
    p.expect("ALTER")
    if p.accept("INDEX"):
        start = p.index
        p.next()
        shown = visibility(p)
        end, p.index = p.index, start
        text = of_index(p, "ALTER INDEX ", f" {shown}")
        p.index = end
        return text
    if p.accept_any(("CHECK", "CONSTRAINT")):
        name = p.name()
        negation = " NOT" if p.accept("NOT") else ""
        p.expect("ENFORCED")
        return p.dialect.part(Part.ALTER_CHECK, f"ALTER CHECK {name}{negation} ENFORCED")
    p.accept("COLUMN")
    text = f"ALTER COLUMN {p.column_name()}"
    if p.accept("DROP", "DEFAULT"):
        return f"{text} DROP DEFAULT"
    p.expect("SET", "DEFAULT")
    return f"{text} SET DEFAULT {_new_default(p)}"


def _new_default(p: Parser) -> str:
    """Parse a default. TiDB prints parentheses around everything but a plain literal."""
    if sign := p.accept_any(("+", "-")):
        return f"({sign}{p.number()})"
    if not p.accept("("):
        return p.literal()
    value = parse_expression(p)
    p.expect(")")
    return value.text if value.shape in (Shape.VALUE, Shape.INTEGER) else f"({value.text})"


def _alter_rename(p: Parser) -> str:
    p.expect("RENAME")
    if p.accept("COLUMN"):
        old = p.name()
        p.expect("TO")
        return f"RENAME COLUMN {old} TO {p.name()}"
    if p.accept_any(("KEY", "INDEX")):
        text = of_index(p, "RENAME INDEX ", "")
        p.expect("TO")
        new = p.name()
        return f"{text} TO {new}" if text else ""
    p.accept_any(("TO", "AS", "="))
    return f"RENAME AS {p.table_name()}"


def _alter_order(p: Parser) -> str:
    p.expect("ORDER", "BY")

    def item() -> str:
        column = p.column_name()
        if p.accept("DESC"):
            return f"{column} DESC"
        p.accept("ASC")
        return column

    return f"ORDER BY {p.list_of(item, ',')}"


def _alter_exchange(p: Parser) -> str:
    p.expect("EXCHANGE", "PARTITION")
    name = p.name()
    p.expect("WITH", "TABLE")
    text = f"EXCHANGE PARTITION {name} WITH TABLE {p.table_name()}"
    if p.accept("WITHOUT", "VALIDATION"):
        return text + after_blank(p, Part.WITHOUT_VALIDATION)
    p.accept("WITH", "VALIDATION")
    return text


def _alter_one_partition(p: Parser) -> AlterSpec:
    p.expect("PARTITION")
    name = p.name()
    if p.at("ATTRIBUTES"):
        _attributes(p)
        return AlterSpec("", printed=False)
    options = []
    while (option := accept_partition_option(p)) is not None:
        options.append(option.text)
    if not any(options):
        return AlterSpec("", printed=False, only_placement=True)
    return AlterSpec(special("placement", f"PARTITION {name} {' '.join(options)}"))


def _alter_remove(p: Parser) -> str:
    p.expect("REMOVE")
    if p.accept("TTL"):
        return special("ttl", "REMOVE TTL")
    p.expect("PARTITIONING")
    return "REMOVE PARTITIONING"


def _alter_reorganize(p: Parser) -> str:
    p.expect("REORGANIZE", "PARTITION")
    text = f"REORGANIZE PARTITION{_no_write_to_binlog(p)}"
    if not p.at_identifier():
        return text
    text += f" {_partition_names(p)}"
    p.expect("INTO")
    return f"{text} INTO{partition_definitions(p, ', ')[0]}"
