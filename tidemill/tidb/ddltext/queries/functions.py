"""Functions with a grammar of their own, aggregates and windows, and the types of CAST.

The subclasses add what functions consist of: expressions and queries.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.tidb.ddltext.queries.literals import quote_text
from tidemill.tidb.ddltext.queries.parser import Parser
from tidemill.tidb.sql.keywords import BUILTIN_FUNCTIONS, words
from tidemill.tidb.sql.lexer import Kind, SqlMode

# Functions whose names are keywords and that are written like any other.
_KEYWORD_FUNCTIONS = words("""
    ASCII CHARSET COALESCE COLLATION DATE DATABASE SCHEMA DAY HOUR IF INTERVAL LOG FORMAT LEFT MICROSECOND MINUTE MONTH
    NOW POINT QUARTER REPEAT REPLACE REVERSE RIGHT ROW_COUNT SECOND TIME TIMESTAMP TRUNCATE USER WEEK YEAR COMPRESS
    PASSWORD
    """)

_OPTIONAL_PARENTHESES = words("CURRENT_USER CURRENT_DATE CURRENT_ROLE UTC_DATE TIDB_CURRENT_TSO")

_OPTIONAL_PRECISION = words("CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP UTC_TIME UTC_TIMESTAMP")

_AGGREGATES = {name: name for name in words("AVG BIT_AND BIT_OR BIT_XOR COUNT MAX MIN SUM STDDEV_POP STDDEV_SAMP VAR_POP VAR_SAMP")} | {
    "STD": "STDDEV_POP",
    "STDDEV": "STDDEV_POP",
    "VARIANCE": "VAR_POP",
}

_DISTINCT_AGGREGATES = words("AVG MAX MIN SUM STDDEV_POP STDDEV_SAMP VAR_POP VAR_SAMP")

_RANKING = words("ROW_NUMBER RANK DENSE_RANK CUME_DIST PERCENT_RANK")

_CAST_TYPES = words("BINARY CHAR CHARACTER DATE YEAR DATETIME TIME DECIMAL DEC SIGNED UNSIGNED JSON DOUBLE FLOAT REAL VECTOR")


# Calls


def accept_special_form(p: Parser) -> str:
    """Parse a keyword that starts an expression; "" when the word is a column name."""
    word, call = p.token.upper, p.peek().upper == "("
    if word == "CASE":
        return _case(p)
    if word in _OPTIONAL_PARENTHESES:
        name = p.next().text.upper()
        if p.accept("("):
            p.expect(")")
        return f"{name}()"
    if word in _OPTIONAL_PRECISION:
        return p.next().text.upper() + precision(p)
    if word in ("DATE", "TIME", "TIMESTAMP") and p.peek().kind is Kind.STRING:
        p.next()
        return f"{word} {p.plain_string()}"
    if word == "NEXT" and p.peek().upper == "VALUE" and p.peek(2).upper == "FOR":
        return next_value(p)
    if not call or (word in BUILTIN_FUNCTIONS and not p.token.reserved):
        return ""
    if word in _AGGREGATES:
        return _aggregate(p)
    if form := _SPECIAL_CALLS.get(word):
        p.next()
        return form(p)
    if word in _RANKING:
        name = p.next().upper
        p.expect("(", ")")
        return f"{name}() OVER {_over(p)}"
    if word in _KEYWORD_FUNCTIONS:
        return p.next().text.upper() + argument_list(p)
    return ""


def argument_list(p: Parser) -> str:
    p.expect("(")
    if p.accept(")"):
        return "()"
    text = p.list_of(p.expression)
    p.expect(")")
    return f"({text})"


def empty_parentheses(p: Parser) -> str:
    p.expect("(", ")")
    return "()"


def precision(p: Parser) -> str:
    """Parse an optional (n); the parentheses are always printed."""
    if not p.accept("("):
        return "()"
    digits = "" if p.at(")") else str(p.unsigned())
    p.expect(")")
    return f"({digits})"


def _case(p: Parser) -> str:
    p.expect("CASE")
    text = "CASE" if p.at("WHEN") else f"CASE {p.expression()}"
    while p.accept("WHEN"):
        text += f" WHEN {p.expression()}"
        p.expect("THEN")
        text += f" THEN {p.expression()}"
    if p.accept("ELSE"):
        text += f" ELSE {p.expression()}"
    p.expect("END")
    return text + " END"


def next_value(p: Parser) -> str:
    p.expect("NEXT", "VALUE", "FOR")
    return f"NEXTVAL({p.table_name()})"


def _date_arithmetic(p: Parser, name: str, bare_days: bool) -> str:
    p.expect("(")
    date = p.expression()
    p.expect(",")
    amount = p.try_parse(p.interval)
    if amount is None:
        if not bare_days:
            raise p.fail("INTERVAL")
        amount = f"INTERVAL {p.expression()} DAY"
    p.expect(")")
    return f"{name}({date}, {amount})"


def _timestamp_arithmetic(p: Parser, name: str) -> str:
    p.expect("(")
    unit = p.time_unit()
    if "_" in unit:
        raise p.fail("a simple time unit")
    p.expect(",")
    first = p.expression()
    p.expect(",")
    second = p.expression()
    p.expect(")")
    return f"{name}({unit}, {first}, {second})"


def _cast(p: Parser) -> str:
    p.expect("(")
    value = p.expression()
    p.expect("AS")
    target = _cast_type(p)
    array = " ARRAY" if p.accept("ARRAY") else ""
    p.expect(")")
    return f"CAST({value} AS {target}{array})"


def _convert(p: Parser) -> str:
    p.expect("(")
    value = p.expression()
    if p.accept("USING"):
        target = quote_text(p.charset_name())
        p.expect(")")
        return f"CONVERT({value} USING {target})"
    p.expect(",")
    target = _cast_type(p)
    p.expect(")")
    return f"CONVERT({value}, {target})"


def _char_function(p: Parser) -> str:
    p.expect("(")
    values = p.list_of(p.expression)
    charset = p.charset_name() if p.accept("USING") else ""
    p.expect(")")
    if p.dialect.exact:
        return f"CHAR({values}{f' USING {charset}' if charset else ''})"
    return f"CHAR_FUNC({values}, {quote_text(charset) if charset else 'NULL'})"


def _extract(p: Parser) -> str:
    p.expect("(")
    unit = p.time_unit()
    p.expect("FROM")
    value = p.expression()
    p.expect(")")
    return f"EXTRACT({unit} FROM {value})"


def _get_format(p: Parser) -> str:
    p.expect("(")
    selector = p.expect_any(("DATE", "TIME", "DATETIME", "TIMESTAMP"))
    p.expect(",")
    value = p.expression()
    p.expect(")")
    return f"GET_FORMAT({'DATETIME' if selector == 'TIMESTAMP' else selector}, {value})"


def _mod(p: Parser) -> str:
    p.expect("(")
    left = p.bits()
    p.expect(",")
    right = p.bits()
    p.expect(")")
    return f"MOD({left}, {right})" if p.dialect.exact else f"{left}%{right}"


def _position(p: Parser) -> str:
    p.expect("(")
    needle = p.bits()
    p.expect("IN")
    haystack = p.expression()
    p.expect(")")
    return f"POSITION({needle} IN {haystack})"


def _substring(p: Parser, name: str) -> str:
    p.expect("(")
    parts = [p.expression()]
    separators = ("FROM", "FOR") if p.at("FROM") else (",", ",")
    p.expect(separators[0])
    parts.append(p.expression())
    if p.accept(separators[1]):
        parts.append(p.expression())
    p.expect(")")
    return f"{name}({', '.join(parts)})"


def _setval(p: Parser) -> str:
    p.expect("(")
    sequence = p.table_name()
    p.expect(",")
    value = p.signed()
    p.expect(")")
    return f"SETVAL({sequence}, {value})"


def _trim(p: Parser) -> str:
    p.expect("(")
    direction = p.accept_any(("BOTH", "LEADING", "TRAILING"))
    if direction:
        removed = f"_{p.value_charset.upper()}' '" if p.at("FROM") else p.expression()
        p.expect("FROM")
        text = f"{direction} {'' if removed == 'NULL' else removed + ' '}FROM {p.expression()}"
    else:
        text = p.expression()
        if p.accept("FROM"):
            text = f"{'' if text == 'NULL' else text + ' '}FROM {p.expression()}"
    p.expect(")")
    return f"TRIM({text})"


def _weight_string(p: Parser) -> str:
    p.expect("(")
    text = p.expression()
    if p.accept("AS"):
        kind = p.expect_any(("CHAR", "CHARACTER", "BINARY"))
        p.expect("(")
        text += f" AS {'BINARY' if kind == 'BINARY' else 'CHAR'}({p.unsigned()})"
        p.expect(")")
    p.expect(")")
    return f"WEIGHT_STRING({text})"


def match_against(p: Parser) -> str:
    p.expect("MATCH")
    columns = p.in_parentheses(p.column_name, ",")
    p.expect("AGAINST")
    p.expect("(")
    against = p.bits()
    modifier = ""
    if p.accept("IN", "BOOLEAN", "MODE"):
        modifier = " IN BOOLEAN MODE"
    else:
        p.accept("IN", "NATURAL", "LANGUAGE", "MODE")
        if p.accept("WITH", "QUERY", "EXPANSION"):
            modifier = " WITH QUERY EXPANSION"
    p.expect(")")
    return f"MATCH {columns} AGAINST ({against}{modifier})"


# Aggregates and windows


def _over(p: Parser) -> str:
    p.expect("OVER")
    return p.name() if p.at_identifier() else p.window_spec()


def _optional_over(p: Parser) -> str:
    return f" OVER {_over(p)}" if p.at("OVER") else ""


def _accept_distinct(p: Parser) -> str:
    if p.accept_any(("DISTINCT", "DISTINCTROW")):
        p.accept("ALL")
        return "DISTINCT "
    p.accept("ALL")
    return ""


def _aggregate(p: Parser) -> str:
    name = _AGGREGATES[p.next().upper]
    p.expect("(")
    if name == "COUNT" and p.accept("*"):
        arguments = "1"
    elif name == "COUNT" and p.accept_any(("DISTINCT", "DISTINCTROW")):
        arguments = "DISTINCT " + p.list_of(p.expression)
        p.expect(")")
        return f"COUNT({arguments})"
    elif name in _DISTINCT_AGGREGATES:
        arguments = _accept_distinct(p) + p.expression()
    else:
        p.accept("ALL")
        arguments = p.expression()
    p.expect(")")
    return f"{name}({arguments}){_optional_over(p)}"


def _json_aggregate(p: Parser, name: str, count: int) -> str:
    p.expect("(")
    parts = []
    for number in range(count):
        if number:
            p.expect(",")
        p.accept("ALL")
        parts.append(p.expression())
    p.expect(")")
    return f"{name}({', '.join(parts)}){_optional_over(p)}"


def _group_concat(p: Parser) -> str:
    p.expect("(")
    distinct = _accept_distinct(p)
    values = p.list_of(p.expression)
    order = f" {p.order_by()}" if p.at("ORDER") else ""
    separator = p.plain_string() if p.accept("SEPARATOR") else "','"
    p.expect(")")
    if p.at("OVER"):
        return f"GROUP_CONCAT({distinct}{values}, {separator}) OVER {_over(p)}"
    return f"GROUP_CONCAT({distinct}{values}{order} SEPARATOR {separator})"


def _null_treatment(p: Parser) -> str:
    if p.accept("RESPECT", "NULLS"):
        return ""
    return " IGNORE NULLS" if p.accept("IGNORE", "NULLS") else ""


def _value_function(p: Parser, name: str) -> str:
    value = p.in_parentheses(p.expression)
    return f"{name}{value}{_null_treatment(p)} OVER {_over(p)}"


def _offset_function(p: Parser, name: str) -> str:
    p.expect("(")
    parts = [p.expression()]
    if p.accept(","):
        parts.append(p.number())
        if p.accept(","):
            parts.append(p.expression())
    p.expect(")")
    return f"{name}({', '.join(parts)}){_null_treatment(p)} OVER {_over(p)}"


def _ntile(p: Parser) -> str:
    return f"NTILE{p.in_parentheses(p.simple)} OVER {_over(p)}"


def _nth_value(p: Parser) -> str:
    p.expect("(")
    value = p.expression()
    p.expect(",")
    nth = p.simple()
    p.expect(")")
    start = ""
    if p.accept("FROM", "LAST"):
        start = " FROM LAST"
    else:
        p.accept("FROM", "FIRST")
    return f"NTH_VALUE({value}, {nth}){start}{_null_treatment(p)} OVER {_over(p)}"


# Types of CAST


def field_length(p: Parser) -> int | None:
    if not p.accept("("):
        return None
    length = p.unsigned()
    p.expect(")")
    return length


def _cast_type(p: Parser) -> str:
    word = p.expect_any(_CAST_TYPES)
    if word in ("DATE", "YEAR", "JSON", "DOUBLE"):
        return word
    if word in ("SIGNED", "UNSIGNED"):
        p.accept_any(("INTEGER", "INT"))
        return word
    if word in ("DATETIME", "TIME"):
        fraction = field_length(p)
        return f"{word}({fraction})" if fraction else word
    if word == "REAL":
        return "FLOAT" if SqlMode.REAL_AS_FLOAT in p.mode else "DOUBLE"
    if word == "FLOAT":
        return _cast_float(p)
    if word in ("DECIMAL", "DEC"):
        return _cast_decimal(p)
    if word == "VECTOR":
        if p.accept("<"):
            p.expect("FLOAT", ">")
        field_length(p)
        return "VECTOR"
    return _cast_text(p, word)


def _cast_float(p: Parser) -> str:
    if not p.accept("("):
        return "FLOAT"
    digits = p.unsigned()
    if p.accept(","):
        p.unsigned()
    p.expect(")")
    if digits >= 54:
        raise p.fail("a precision of at most 53")
    return "DOUBLE" if digits >= 25 else "FLOAT"


def _cast_decimal(p: Parser) -> str:
    if not p.accept("("):
        return "DECIMAL(10)"
    digits = p.unsigned()
    scale = p.unsigned() if p.accept(",") else 0
    p.expect(")")
    if not digits:
        return "DECIMAL"
    return f"DECIMAL({digits}, {scale})" if scale else f"DECIMAL({digits})"


def _cast_text(p: Parser, word: str) -> str:
    length = field_length(p)
    size = "" if length is None else f"({length})"
    if word == "BINARY":
        return f"BINARY{size}"
    charset, binary = charset_with_binary(p)
    if binary or (not charset and p.charset == "binary"):
        return f"BINARY{size}"
    if charset == "binary":
        return f"BINARY{size}"
    return f"CHAR{size}" + (f" CHARSET {charset.upper()}" if charset not in ("", "utf8mb4") else "")


def charset_with_binary(p: Parser) -> tuple[str, bool]:
    """Parse [BINARY] and [CHARACTER SET name] in either order. Returns the name (or "") and whether BINARY was there."""
    if p.accept("BINARY"):
        return (p.charset_name() if p.accept_charset_keyword() else ""), True
    if p.accept_charset_keyword():
        name = p.charset_name()
        return name, p.accept("BINARY")
    return "", False


_SPECIAL_CALLS: dict[str, Callable[[Parser], str]] = {
    "ADDDATE": lambda p: _date_arithmetic(p, "ADDDATE", bare_days=True),
    "SUBDATE": lambda p: _date_arithmetic(p, "SUBDATE", bare_days=True),
    "DATE_ADD": lambda p: _date_arithmetic(p, "DATE_ADD", bare_days=False),
    "DATE_SUB": lambda p: _date_arithmetic(p, "DATE_SUB", bare_days=False),
    "APPROX_COUNT_DISTINCT": lambda p: "APPROX_COUNT_DISTINCT" + p.in_parentheses(p.expression),
    "APPROX_PERCENTILE": lambda p: "APPROX_PERCENTILE" + p.in_parentheses(p.expression),
    "CAST": _cast,
    "CHAR": _char_function,
    "CONVERT": _convert,
    "CURDATE": lambda p: "CURDATE" + empty_parentheses(p),
    "CURTIME": lambda p: "CURTIME" + precision(p),
    "DEFAULT": lambda p: "DEFAULT" + p.in_parentheses(p.column_name),
    "EXTRACT": _extract,
    "FIRST_VALUE": lambda p: _value_function(p, "FIRST_VALUE"),
    "GET_FORMAT": _get_format,
    "GROUP_CONCAT": _group_concat,
    "INSERT": lambda p: ("INSERT" if p.dialect.exact else "INSERT_FUNC") + argument_list(p),
    "JSON_ARRAYAGG": lambda p: _json_aggregate(p, "JSON_ARRAYAGG", 1),
    "JSON_OBJECTAGG": lambda p: _json_aggregate(p, "JSON_OBJECTAGG", 2),
    "LAG": lambda p: _offset_function(p, "LAG"),
    "LAST_VALUE": lambda p: _value_function(p, "LAST_VALUE"),
    "LASTVAL": lambda p: "LASTVAL" + p.in_parentheses(p.table_name),
    "LEAD": lambda p: _offset_function(p, "LEAD"),
    "MID": lambda p: _substring(p, "MID"),
    "MOD": _mod,
    "NEXTVAL": lambda p: "NEXTVAL" + p.in_parentheses(p.table_name),
    "NTH_VALUE": _nth_value,
    "NTILE": _ntile,
    "POSITION": _position,
    "SETVAL": _setval,
    "SUBSTR": lambda p: _substring(p, "SUBSTR"),
    "SUBSTRING": lambda p: _substring(p, "SUBSTRING"),
    "SYSDATE": lambda p: "SYSDATE" + precision(p),
    "TIMESTAMPADD": lambda p: _timestamp_arithmetic(p, "TIMESTAMPADD"),
    "TIMESTAMPDIFF": lambda p: _timestamp_arithmetic(p, "TIMESTAMPDIFF"),
    "TRANSLATE": lambda p: "TRANSLATE" + p.in_parentheses(p.expression),
    "TRIM": _trim,
    "VALUES": lambda p: "VALUES" + p.in_parentheses(p.column_name),
    "WEIGHT_STRING": _weight_string,
}
"""Calls whose arguments have a grammar of their own, by the function's name."""
