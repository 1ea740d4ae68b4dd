"""Functions with a grammar of their own, aggregates and windows, and the types of CAST.

The subclasses add what functions consist of: expressions and queries.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.tidb.ddltext.cursor import Cursor
from tidemill.tidb.ddltext.queries.literals import quote_text
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


class Functions(Cursor):
    """Calls that are not just a name and arguments."""

    # What expressions and queries add

    def expression(self) -> str:
        """Parse an expression."""
        raise NotImplementedError

    def bits(self) -> str:
        """Parse an expression of the arithmetic level."""
        raise NotImplementedError

    def simple(self) -> str:
        """Parse an operand with its signs."""
        raise NotImplementedError

    def interval(self) -> str:
        """Parse INTERVAL amount unit."""
        raise NotImplementedError

    def window_spec(self) -> str:
        """Parse what follows OVER, in parentheses."""
        raise NotImplementedError

    def order_by(self) -> str:
        """Parse ORDER BY and its list."""
        raise NotImplementedError

    # Calls

    def accept_special_form(self) -> str:
        """Parse a keyword that starts an expression; "" when the word is a column name."""
        word, call = self.token.upper, self.peek().upper == "("
        if word == "CASE":
            return self.case()
        if word in _OPTIONAL_PARENTHESES:
            name = self.next().text.upper()
            if self.accept("("):
                self.expect(")")
            return f"{name}()"
        if word in _OPTIONAL_PRECISION:
            return self.next().text.upper() + self.precision()
        if word in ("DATE", "TIME", "TIMESTAMP") and self.peek().kind is Kind.STRING:
            self.next()
            return f"{word} {self.plain_string()}"
        if word == "NEXT" and self.peek().upper == "VALUE" and self.peek(2).upper == "FOR":
            return self.next_value()
        if not call or (word in BUILTIN_FUNCTIONS and not self.token.reserved):
            return ""
        if word in _AGGREGATES:
            return self.aggregate()
        if form := self.special_calls().get(word):
            self.next()
            return form()
        if word in _RANKING:
            name = self.next().upper
            self.expect("(", ")")
            return f"{name}() OVER {self.over()}"
        if word in _KEYWORD_FUNCTIONS:
            return self.next().text.upper() + self.arguments()
        return ""

    def special_calls(self) -> dict[str, Callable[[], str]]:
        return {
            "ADDDATE": lambda: self.date_arithmetic("ADDDATE", bare_days=True),
            "SUBDATE": lambda: self.date_arithmetic("SUBDATE", bare_days=True),
            "DATE_ADD": lambda: self.date_arithmetic("DATE_ADD", bare_days=False),
            "DATE_SUB": lambda: self.date_arithmetic("DATE_SUB", bare_days=False),
            "APPROX_COUNT_DISTINCT": lambda: "APPROX_COUNT_DISTINCT" + self.in_parentheses(self.expression),
            "APPROX_PERCENTILE": lambda: "APPROX_PERCENTILE" + self.in_parentheses(self.expression),
            "CAST": self.cast,
            "CHAR": self.char_function,
            "CONVERT": self.convert,
            "CURDATE": lambda: "CURDATE" + self.empty_parentheses(),
            "CURTIME": lambda: "CURTIME" + self.precision(),
            "DEFAULT": lambda: "DEFAULT" + self.in_parentheses(self.column_name),
            "EXTRACT": self.extract,
            "FIRST_VALUE": lambda: self.value_function("FIRST_VALUE"),
            "GET_FORMAT": self.get_format,
            "GROUP_CONCAT": self.group_concat,
            "INSERT": lambda: ("INSERT" if self.dialect.exact else "INSERT_FUNC") + self.arguments(),
            "JSON_ARRAYAGG": lambda: self.json_aggregate("JSON_ARRAYAGG", 1),
            "JSON_OBJECTAGG": lambda: self.json_aggregate("JSON_OBJECTAGG", 2),
            "LAG": lambda: self.offset_function("LAG"),
            "LAST_VALUE": lambda: self.value_function("LAST_VALUE"),
            "LASTVAL": lambda: "LASTVAL" + self.in_parentheses(self.table_name),
            "LEAD": lambda: self.offset_function("LEAD"),
            "MID": lambda: self.substring("MID"),
            "MOD": self.mod,
            "NEXTVAL": lambda: "NEXTVAL" + self.in_parentheses(self.table_name),
            "NTH_VALUE": self.nth_value,
            "NTILE": self.ntile,
            "POSITION": self.position,
            "SETVAL": self.setval,
            "SUBSTR": lambda: self.substring("SUBSTR"),
            "SUBSTRING": lambda: self.substring("SUBSTRING"),
            "SYSDATE": lambda: "SYSDATE" + self.precision(),
            "TIMESTAMPADD": lambda: self.timestamp_arithmetic("TIMESTAMPADD"),
            "TIMESTAMPDIFF": lambda: self.timestamp_arithmetic("TIMESTAMPDIFF"),
            "TRANSLATE": lambda: "TRANSLATE" + self.in_parentheses(self.expression),
            "TRIM": self.trim,
            "VALUES": lambda: "VALUES" + self.in_parentheses(self.column_name),
            "WEIGHT_STRING": self.weight_string,
        }

    def arguments(self) -> str:
        self.expect("(")
        if self.accept(")"):
            return "()"
        text = self.list_of(self.expression)
        self.expect(")")
        return f"({text})"

    def empty_parentheses(self) -> str:
        self.expect("(", ")")
        return "()"

    def precision(self) -> str:
        """Parse an optional (n); the parentheses are always printed."""
        if not self.accept("("):
            return "()"
        digits = "" if self.at(")") else str(self.unsigned())
        self.expect(")")
        return f"({digits})"

    def case(self) -> str:
        self.expect("CASE")
        text = "CASE" if self.at("WHEN") else f"CASE {self.expression()}"
        while self.accept("WHEN"):
            text += f" WHEN {self.expression()}"
            self.expect("THEN")
            text += f" THEN {self.expression()}"
        if self.accept("ELSE"):
            text += f" ELSE {self.expression()}"
        self.expect("END")
        return text + " END"

    def next_value(self) -> str:
        self.expect("NEXT", "VALUE", "FOR")
        return f"NEXTVAL({self.table_name()})"

    def date_arithmetic(self, name: str, bare_days: bool) -> str:
        self.expect("(")
        date = self.expression()
        self.expect(",")
        amount = self.try_parse(self.interval)
        if amount is None:
            if not bare_days:
                raise self.fail("INTERVAL")
            amount = f"INTERVAL {self.expression()} DAY"
        self.expect(")")
        return f"{name}({date}, {amount})"

    def timestamp_arithmetic(self, name: str) -> str:
        self.expect("(")
        unit = self.time_unit()
        if "_" in unit:
            raise self.fail("a simple time unit")
        self.expect(",")
        first = self.expression()
        self.expect(",")
        second = self.expression()
        self.expect(")")
        return f"{name}({unit}, {first}, {second})"

    def cast(self) -> str:
        self.expect("(")
        value = self.expression()
        self.expect("AS")
        target = self.cast_type()
        array = " ARRAY" if self.accept("ARRAY") else ""
        self.expect(")")
        return f"CAST({value} AS {target}{array})"

    def convert(self) -> str:
        self.expect("(")
        value = self.expression()
        if self.accept("USING"):
            target = quote_text(self.charset_name())
            self.expect(")")
            return f"CONVERT({value} USING {target})"
        self.expect(",")
        target = self.cast_type()
        self.expect(")")
        return f"CONVERT({value}, {target})"

    def char_function(self) -> str:
        self.expect("(")
        values = self.list_of(self.expression)
        charset = self.charset_name() if self.accept("USING") else ""
        self.expect(")")
        if self.dialect.exact:
            return f"CHAR({values}{f' USING {charset}' if charset else ''})"
        return f"CHAR_FUNC({values}, {quote_text(charset) if charset else 'NULL'})"

    def extract(self) -> str:
        self.expect("(")
        unit = self.time_unit()
        self.expect("FROM")
        value = self.expression()
        self.expect(")")
        return f"EXTRACT({unit} FROM {value})"

    def get_format(self) -> str:
        self.expect("(")
        selector = self.expect_any(("DATE", "TIME", "DATETIME", "TIMESTAMP"))
        self.expect(",")
        value = self.expression()
        self.expect(")")
        return f"GET_FORMAT({'DATETIME' if selector == 'TIMESTAMP' else selector}, {value})"

    def mod(self) -> str:
        self.expect("(")
        left = self.bits()
        self.expect(",")
        right = self.bits()
        self.expect(")")
        return f"MOD({left}, {right})" if self.dialect.exact else f"{left}%{right}"

    def position(self) -> str:
        self.expect("(")
        needle = self.bits()
        self.expect("IN")
        haystack = self.expression()
        self.expect(")")
        return f"POSITION({needle} IN {haystack})"

    def substring(self, name: str) -> str:
        self.expect("(")
        parts = [self.expression()]
        separators = ("FROM", "FOR") if self.at("FROM") else (",", ",")
        self.expect(separators[0])
        parts.append(self.expression())
        if self.accept(separators[1]):
            parts.append(self.expression())
        self.expect(")")
        return f"{name}({', '.join(parts)})"

    def setval(self) -> str:
        self.expect("(")
        sequence = self.table_name()
        self.expect(",")
        value = self.signed()
        self.expect(")")
        return f"SETVAL({sequence}, {value})"

    def trim(self) -> str:
        self.expect("(")
        direction = self.accept_any(("BOTH", "LEADING", "TRAILING"))
        if direction:
            removed = f"_{self.value_charset.upper()}' '" if self.at("FROM") else self.expression()
            self.expect("FROM")
            text = f"{direction} {'' if removed == 'NULL' else removed + ' '}FROM {self.expression()}"
        else:
            text = self.expression()
            if self.accept("FROM"):
                text = f"{'' if text == 'NULL' else text + ' '}FROM {self.expression()}"
        self.expect(")")
        return f"TRIM({text})"

    def weight_string(self) -> str:
        self.expect("(")
        text = self.expression()
        if self.accept("AS"):
            kind = self.expect_any(("CHAR", "CHARACTER", "BINARY"))
            self.expect("(")
            text += f" AS {'BINARY' if kind == 'BINARY' else 'CHAR'}({self.unsigned()})"
            self.expect(")")
        self.expect(")")
        return f"WEIGHT_STRING({text})"

    def match_against(self) -> str:
        self.expect("MATCH")
        columns = self.in_parentheses(self.column_name, ",")
        self.expect("AGAINST")
        self.expect("(")
        against = self.bits()
        modifier = ""
        if self.accept("IN", "BOOLEAN", "MODE"):
            modifier = " IN BOOLEAN MODE"
        else:
            self.accept("IN", "NATURAL", "LANGUAGE", "MODE")
            if self.accept("WITH", "QUERY", "EXPANSION"):
                modifier = " WITH QUERY EXPANSION"
        self.expect(")")
        return f"MATCH {columns} AGAINST ({against}{modifier})"

    # Aggregates and windows

    def over(self) -> str:
        self.expect("OVER")
        return self.name() if self.at_identifier() else self.window_spec()

    def optional_over(self) -> str:
        return f" OVER {self.over()}" if self.at("OVER") else ""

    def accept_distinct(self) -> str:
        if self.accept_any(("DISTINCT", "DISTINCTROW")):
            self.accept("ALL")
            return "DISTINCT "
        self.accept("ALL")
        return ""

    def aggregate(self) -> str:
        name = _AGGREGATES[self.next().upper]
        self.expect("(")
        if name == "COUNT" and self.accept("*"):
            arguments = "1"
        elif name == "COUNT" and self.accept_any(("DISTINCT", "DISTINCTROW")):
            arguments = "DISTINCT " + self.list_of(self.expression)
            self.expect(")")
            return f"COUNT({arguments})"
        elif name in _DISTINCT_AGGREGATES:
            arguments = self.accept_distinct() + self.expression()
        else:
            self.accept("ALL")
            arguments = self.expression()
        self.expect(")")
        return f"{name}({arguments}){self.optional_over()}"

    def json_aggregate(self, name: str, count: int) -> str:
        self.expect("(")
        parts = []
        for number in range(count):
            if number:
                self.expect(",")
            self.accept("ALL")
            parts.append(self.expression())
        self.expect(")")
        return f"{name}({', '.join(parts)}){self.optional_over()}"

    def group_concat(self) -> str:
        self.expect("(")
        distinct = self.accept_distinct()
        values = self.list_of(self.expression)
        order = f" {self.order_by()}" if self.at("ORDER") else ""
        separator = self.plain_string() if self.accept("SEPARATOR") else "','"
        self.expect(")")
        if self.at("OVER"):
            return f"GROUP_CONCAT({distinct}{values}, {separator}) OVER {self.over()}"
        return f"GROUP_CONCAT({distinct}{values}{order} SEPARATOR {separator})"

    def null_treatment(self) -> str:
        if self.accept("RESPECT", "NULLS"):
            return ""
        return " IGNORE NULLS" if self.accept("IGNORE", "NULLS") else ""

    def value_function(self, name: str) -> str:
        value = self.in_parentheses(self.expression)
        return f"{name}{value}{self.null_treatment()} OVER {self.over()}"

    def offset_function(self, name: str) -> str:
        self.expect("(")
        parts = [self.expression()]
        if self.accept(","):
            parts.append(self.number())
            if self.accept(","):
                parts.append(self.expression())
        self.expect(")")
        return f"{name}({', '.join(parts)}){self.null_treatment()} OVER {self.over()}"

    def ntile(self) -> str:
        return f"NTILE{self.in_parentheses(self.simple)} OVER {self.over()}"

    def nth_value(self) -> str:
        self.expect("(")
        value = self.expression()
        self.expect(",")
        nth = self.simple()
        self.expect(")")
        start = ""
        if self.accept("FROM", "LAST"):
            start = " FROM LAST"
        else:
            self.accept("FROM", "FIRST")
        return f"NTH_VALUE({value}, {nth}){start}{self.null_treatment()} OVER {self.over()}"

    # Types of CAST

    def field_length(self) -> int | None:
        if not self.accept("("):
            return None
        length = self.unsigned()
        self.expect(")")
        return length

    def cast_type(self) -> str:
        word = self.expect_any(_CAST_TYPES)
        if word in ("DATE", "YEAR", "JSON", "DOUBLE"):
            return word
        if word in ("SIGNED", "UNSIGNED"):
            self.accept_any(("INTEGER", "INT"))
            return word
        if word in ("DATETIME", "TIME"):
            fraction = self.field_length()
            return f"{word}({fraction})" if fraction else word
        if word == "REAL":
            return "FLOAT" if SqlMode.REAL_AS_FLOAT in self.mode else "DOUBLE"
        if word == "FLOAT":
            return self.cast_float()
        if word in ("DECIMAL", "DEC"):
            return self.cast_decimal()
        if word == "VECTOR":
            if self.accept("<"):
                self.expect("FLOAT", ">")
            self.field_length()
            return "VECTOR"
        return self.cast_text(word)

    def cast_float(self) -> str:
        if not self.accept("("):
            return "FLOAT"
        digits = self.unsigned()
        if self.accept(","):
            self.unsigned()
        self.expect(")")
        if digits >= 54:
            raise self.fail("a precision of at most 53")
        return "DOUBLE" if digits >= 25 else "FLOAT"

    def cast_decimal(self) -> str:
        if not self.accept("("):
            return "DECIMAL(10)"
        digits = self.unsigned()
        scale = self.unsigned() if self.accept(",") else 0
        self.expect(")")
        if not digits:
            return "DECIMAL"
        return f"DECIMAL({digits}, {scale})" if scale else f"DECIMAL({digits})"

    def cast_text(self, word: str) -> str:
        length = self.field_length()
        size = "" if length is None else f"({length})"
        if word == "BINARY":
            return f"BINARY{size}"
        charset, binary = self.charset_with_binary()
        if binary or (not charset and self.charset == "binary"):
            return f"BINARY{size}"
        if charset == "binary":
            return f"BINARY{size}"
        return f"CHAR{size}" + (f" CHARSET {charset.upper()}" if charset not in ("", "utf8mb4") else "")

    def charset_with_binary(self) -> tuple[str, bool]:
        """Parse [BINARY] and [CHARACTER SET name] in either order. Returns the name (or "") and whether BINARY was there."""
        if self.accept("BINARY"):
            return (self.charset_name() if self.accept_charset_keyword() else ""), True
        if self.accept_charset_keyword():
            name = self.charset_name()
            return name, self.accept("BINARY")
        return "", False
