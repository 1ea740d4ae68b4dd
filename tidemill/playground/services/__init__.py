"""The playground's ports: PD, TiKV's reads and the change feed over gRPC, as clients of the real ones expect them.

In: requests. Out: answers of the store behind them. `members.py` says which PD leads, `gate.py` breaks connections.
Read `pd.py` first.
"""
