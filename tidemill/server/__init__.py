"""`tidemill server`: one capture, any number of changefeeds, and one Spark session that delivers them all.

What comes in: changefeeds that a person or a program creates, over HTTP (`api`). What goes out: a capture process and a delivery host,
supervised, and the state of each changefeed in DATA_DIR/changefeeds/ID. Read `service` first: it is the contract between the API and the
server. Then `manager`, which keeps it.
"""
