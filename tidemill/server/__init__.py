"""`tidemill server`: one capture, any number of changefeeds, and one Spark session that delivers them all.

In: changefeeds that a person or a program creates, over HTTP (`api`). Out: a capture process and a delivery host, both supervised, and what
all servers of a log share (`shared`): one of them leads. Read `service.py` first: it is the contract between the API and the server. Then
`manager.py`, which keeps it, `this_server.py`, what all parts know of the server, `changefeeds/`, and `host/`, the process that delivers.
"""
