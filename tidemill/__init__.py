"""Tidemill: change data capture for TiDB. Rows go from `capture` into `changelog`, and through `spark` and `delivery` to `sinks`."""
