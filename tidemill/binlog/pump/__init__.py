"""Pump: takes binlogs from TiDB, keeps them, and gives them to Drainers in commit order.

In: WriteBinlog. Out: PullBinlogs. A binlog goes into the value log (`log.py`), is synced and then answered (`store.py`), gets a key in the
index (`index.py`), passes the order (`tidemill/binlog/order.py`), and can be pulled (`pulling.py`). `server.py` puts a process together;
`port.py` serves gRPC and HTTP on one port. Read `store.py` first.
"""
