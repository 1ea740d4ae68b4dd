"""Schemas over time, from bytes of TiDB's meta range and its DDL jobs.

codes     numbers by name: types, flags, states, actions
model     databases, tables, columns, indexes, partitions as stored (JSON)
metakeys  which meta keys count, and what the schema stream of a log is made of
job       a DDL job at one step
view      what users see of a table: when a new version begins
catalog   the newest state, and how meta keys change it; effects: how a finished job alone does
versions  the versions of all tables on one line of time
tracker   which event a job is, and where it stands; statements: what it says
history   SchemaHistory: all of it together
"""
