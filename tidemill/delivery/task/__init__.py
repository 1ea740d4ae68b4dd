"""Runs one work item, in a worker process.

In: segments of the log. Out: messages in the sink, acknowledged; statistics.
read (`reader.py`) → chunk (`chunker.py`) → filter (`row_filter.py`) → route → encode (`encoder.py`) → deliver, some thousand rows at once.
Read `run.py` first.
"""
