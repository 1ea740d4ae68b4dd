"""Tidemill: change data capture for TiDB. A row goes from `capture` into `changelog`, and by `spark` and `delivery` to `sinks`."""
