"""The delivery host: the one process with a Spark session, which runs all changefeeds of a server, each in a thread.

In: commands of the server, a line each on stdin, and what each changefeed was created with (`server/settings.py`). Out: batches that are
delivered, checkpoints in DATA_DIR/changefeeds/ID, and reports, a line each on stdout. Read `messages.py` first, then `process.py` (which
feeds run) and `feed.py` (one of them); `shared_log.py` is what they share of the log, `shared_spark.py` of Spark.
"""
