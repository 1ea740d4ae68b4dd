"""Clients of PD and TiKV.

In: addresses, TLS files, keys. Out: timestamps, regions, stores, safe points, answers of TiKV's key-value calls.
`pd.py` talks to the placement driver, `region_calls.py` to the leader of a key's region, both over `channels.py`.
Read `pd.py` first.
"""
