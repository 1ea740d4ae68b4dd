"""The routes, one file a group: changefeeds, where their tables are, the servers, unsafe ones, and version 1 for TiDB Operator.

In: a `ChangefeedService` and who may change something. Out: FastAPI's routers. Read `changefeeds` first.
"""
