"""A query → what Spark makes of it. In: SQL, and the tables that it may read. Out: Spark's plan as a JSON document, which
is kept with the view.

`session` is a Spark SQL of its own beside whatever else runs in the process; `analysis` has a query analysed there. Both do IO.
"""
