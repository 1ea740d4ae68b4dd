"""What the servers of one log share, and which of them leads.

In: files below LOG/server, or a key in etcd, and the time. Out: the term in which this server leads; the changefeeds, which only the
server of the newest term can change. Read `election.py` first: it decides, and is pure. `elector.py` carries out what it decides;
`lease.py` is the lease, `members.py` the list of servers, `records.py` the changefeeds, `file.py` a file that is changed in one step.
"""
