"""TiDB-Binlog, for clusters up to TiDB 8.3: what TiDB writes into Pumps, and what Drainers make of it.

In: binlogs of TiDB, by gRPC. Out: the same binlogs in commit order, and the change log. The modules of this folder are pure: messages
(`messages.py`), the entries of the registry (`nodes.py`). Beside them have IO: `registry` (etcd), `pump`. Read `messages.py` first.
"""
