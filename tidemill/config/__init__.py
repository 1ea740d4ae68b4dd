"""A changefeed's settings: the sink URI and the TOML file, with TiCDC's names, types and defaults.

In: text. Out: checked, frozen settings, or an error with all faults and hints. Pure.
`parameters.py` and `sections.py` are the tables of settings, `sinks.py` is that of sinks. `kafka.py`, `storage.py`, `canal.py` and
`sink_fields.py` read what is special in the URI of each.
Read `uri.py` and `file.py` first.
"""
