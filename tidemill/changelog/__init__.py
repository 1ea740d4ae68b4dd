"""The change log: durable, complete, without duplicates, replayable. Format: docs/change-log-format.md.

In: sorted record batches and the resolved ts of each partition. Out: the same, to any number of readers, until retention removes it.
`log_format.py` defines names and fields, `writer.py` and `reader.py` are the two sides, `files/` has the segments, `storage/` the file
systems. Read `log_format.py` first.

Both sides as code:

    # the writer of a folder (`writer.py`)                      # a reader (`reader.py`)
    with ownership.publishing_to(folder, to_ts):                to_ts = reader.resolved_ts()            # the lowest head
        draft.publish(f"{last_to}-{to_ts}.arrow")               schemas = reader.read_schema(from_ts, to_ts)
        storage.settle(folder)             # durable            for interval in reader.chain(p, from_ts, to_ts):
        head_file.put(to_ts)               # then visible           rows = reader.open_segment(interval.parts[0])

What always holds:

    LOG1  The content of an interval follows from its bounds (from, to]: whoever writes it again writes the same rows.
    LOG2  The intervals of a folder follow each other without a gap, from the log's start. No row at or below a head comes later.
    LOG3  Rows of a segment are sorted by (commit_ts, start_ts, table_id, key), and no two are equal in all four.
    LOG4  A segment is durable before head.json says so, and a file appears as a whole. A crash between the two leaves a segment from which
          the next writer goes on.
    LOG5  A folder has one writer. Its epoch in owner.json, a lock or compare-and-swap make the check and the publication one step
          (`ownership.py`); an earlier writer publishes nothing more.
    LOG6  The log is complete up to its lowest head, that of the schema stream included: up to there a reader has the schema of each row.
    LOG7  Nothing above a registered checkpoint is removed (`feeds.py`, `retention.py`). The start moves before files go.
    LOG8  A log is of one cluster and one source. Its layout at a commit_ts says in which partition a row is, and never changes for that ts.
"""
