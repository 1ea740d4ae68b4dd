"""Views: queries over captured tables that are kept up to date incrementally, and are always those of one resolved ts.

In: a SELECT that Spark analyses (`spark`; `sql` makes a plan of its answer), changes of tables out of a change log (`changes`).
Out: changes of the view, interval by interval, into one of `targets`. `rules` has the delta rules, as SQL of DuckDB, the embedded engine;
`engine` is the state, `view` the run. Read `plan.py`, then `rules.py`.
"""

from tidemill.views.definition import Views
from tidemill.views.view import View, create, drop

__all__ = ["View", "Views", "create", "drop"]
