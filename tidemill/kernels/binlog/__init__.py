"""Binlogs of Pumps → records of the change log, many at a time.

In: the messages of PullBinlogs as they came, concatenated. Out: the head of each (`heads.py`), and of transactions in commit order the
changes of records (`records.py`), which `gather.py` copies into Arrow buffers. Read `layout.py` first: the structs that they share.
Reference: `tidemill.binlog.messages` for heads, `tidemill.binlog.records` for records.
"""
