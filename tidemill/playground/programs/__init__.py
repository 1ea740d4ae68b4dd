"""Programs from Maven Central that demos and tests start: a Kafka broker and a schema registry, each fetched once by its `pom.xml`.

In: a folder. Out: a process on free ports. Read `maven.py` first.
"""
