"""A SELECT in Spark's words → the plan of a view. sqlglot parses it and resolves its names. All of it is pure.

In: a query, and the tables that a log has. Out: a `Plan`, or ViewRefused with what a view cannot have. Read `planner.py` first; `sources`
has FROM and WHERE, `groups` GROUP BY, `windows` windows and ORDER BY.
"""

from tidemill.views.sql.parse import tables_of
from tidemill.views.sql.planner import plan_of

__all__ = ["plan_of", "tables_of"]
