"""The server's side of HTTP/2 and gRPC, as far as Pump needs it: no sockets, no clock. Bytes in, events and bytes out.

In: what a connection received; answers of the service. Out: binlogs in a group (`tidemill/binlog/groups.py`), calls for the service, bytes
to send. `connection.py` is the machine; `frames.py` has the codes and layouts of RFC 9113; `sending.py` has what streams still have to
send; `headers.py` reads blocks of headers (RFC 7541). Read `connection.py` first.
"""
