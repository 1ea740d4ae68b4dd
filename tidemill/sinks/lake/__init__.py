"""Tables of a lakehouse as a sink: delta:// (`delta`) and iceberg:// (`iceberg`).

In: rows as typed Arrow columns (`rows`), DDLs. Out: one commit for each table and interval, which carries its resolved ts, and a manifest
for each resolved ts that names the version of every table (`manifest`). Tasks stage what an interval leaves of each row (`task`), the
driver merges it into the tables (`driver`). `shapes` describes tables, `evolution` decides what a DDL does to one.
Read `driver.py` first. TYPES.md has the types.
"""
