"""Value expressions of event filters: conditions in TiDB's SQL on the columns of one row.

`parse` reads the text. `bind` compiles it for a table to a function of a row's cells. An expression that cannot be parsed, names an unknown
column, or does not depend on the row alone (NOW(), RAND(), subqueries) is a ConfigError.

In: text. Out: a function of a row's cells. Read `tree.py`, then `parse.py`.
"""

from tidemill.rules.expressions.bind import Condition, bind
from tidemill.rules.expressions.parse import parse

__all__ = ["Condition", "bind", "parse"]
