"""TiDB as a catalog of Spark: `SELECT … FROM tidb.shop.orders`. docs/spark/catalog.md explains it.

In: names of databases and tables, a version, the range of a CHANGES clause. Out: schemas, and the options with which `tidemill.table` and
`tidemill` read. Read `source.py` first: Spark takes a catalog as a Java class only, and the one below `java/` hands each question to it.
"""
