"""`tidemill server`: one capture, any number of changefeeds, and one Spark session that delivers them all.

In: changefeeds that a person or a program creates, over HTTP (`api`). Out: a capture process and a delivery host, both supervised, and the
state of each changefeed in DATA_DIR/changefeeds/ID. Read `service.py` first: it is the contract between the API and the server. Then
`manager.py`, which keeps it, and `host/`, the process that delivers.
"""
