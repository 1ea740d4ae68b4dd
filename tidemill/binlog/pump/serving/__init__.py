"""What a Pump answers, on one port: WriteBinlog and PullBinlogs by gRPC, and its pages by HTTP/1.1.

In: calls and requests. Out: binlogs for the store; answers. `http2.py` feeds sockets into the machine of `tidemill/binlog/http2`;
`service.py` has the calls themselves, and gRPC's own server as the other way to them; `pages.py` has the pages. Read `service.py` first.
"""
