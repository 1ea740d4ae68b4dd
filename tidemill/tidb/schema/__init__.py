"""TiDB's schemas over time, read from its meta range and its DDL jobs.

codes     names of TiDB's numbers: types, flags, states, actions
model     databases, tables, columns, indexes, partitions as stored (JSON)
metakeys  which meta keys matter, and which key ranges the log's schema stream covers
job       a DDL job at one step
details   the parts of a table's description that only SHOW CREATE TABLE needs; show prints the statement
events    DdlEvent: a DDL as a changefeed gets it
tracking/ changes over time: versions of tables, and the place of each DDL among the rows

In: changes of meta keys and of DDL jobs. Out: versions of tables, DDL events. Read `model.py`, then `tracking/`.
"""
