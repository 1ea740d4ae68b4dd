"""The playground's data without sockets: versions of keys, regions, timestamps, safe points and change feeds.

In: writes of transactions. Out: messages of the change feed, in the bytes of TiKV. `cluster.py` puts the parts together, `truth.py` tells
what tables hold at a timestamp. Read `cluster.py` first.
"""
