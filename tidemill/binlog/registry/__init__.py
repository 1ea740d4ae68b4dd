"""The registry of Pumps and Drainers in PD's etcd. In: PD's members. Out: nodes by id, kept by a watch; this process's own entry.

Read `client.py` first: it reads, writes and watches nodes; `heartbeat.py` keeps this process's entry. Keys and values are in
`tidemill/binlog/nodes.py`.
"""
