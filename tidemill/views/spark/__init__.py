"""A query → what Spark makes of it, and its rows where Spark has to compute them. Both modules do IO.

In: SQL, and the tables that it may read. Out: Spark's plan as a JSON document, which is kept with the view; rows. Read `analysis` first: it
has a query analysed. `session` is a Spark SQL of its own beside whatever else runs in the process.
"""
