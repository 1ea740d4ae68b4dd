"""Schemas over time, from bytes of TiDB's meta range and its DDL jobs.

codes     numbers by name: types, flags, states, actions
model     databases, tables, columns, indexes, partitions as stored (JSON)
metakeys  which meta keys count, and what the schema stream of a log is made of
job       a DDL job at one step
details   the parts of a table's description that only SHOW CREATE TABLE needs; show prints it
events    DdlEvent: what a changefeed is told of a DDL
tracking/ how all this changes over time: versions of tables, and DDLs at their place
"""
