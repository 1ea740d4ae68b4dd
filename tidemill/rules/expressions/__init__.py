"""Value expressions of event filters: a condition in TiDB's SQL about the columns of one row.

`parse` reads the text; `bind` fits it to a table and gives what tells of a row's cells whether the condition holds. What cannot be read,
names an unknown column, or would not depend on the row alone (NOW(), RAND(), subqueries) is a ConfigError.
"""

from tidemill.rules.expressions.bind import Condition, bind
from tidemill.rules.expressions.parse import parse

__all__ = ["Condition", "bind", "parse"]
