"""Kernels of Pump: from the bytes of HTTP/2 connections to records of the value log, and from records to what Drainers get.

    headers   blocks of headers (HPACK) -> which method is called
    intake    frames of a connection -> records of the value log, with a MARK each
    answers   marks of written records -> the frames that answer their calls; bytes -> DATA frames
    pull      records -> answers of PullBinlogs, each Commit joined with its Prewrite

References: hpack's decoder, the readable path of `tidemill/binlog/http2/connection.py`, `tidemill/binlog/valuelog.py`, and `join` in
`tidemill/binlog/messages.py`. What a kernel finds unusual or broken it hands back to them.

In: received bytes, bytes of the value log. Out: records, frames. Read `layout.py`, then `intake.py`.
"""
