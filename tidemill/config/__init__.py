"""A changefeed's settings: the sink URI and the TOML file, with TiCDC's names, types and defaults.

In: text. Out: checked, frozen settings, or an error with all faults and hints. Pure.
`parameters.py` and `sections.py` are the tables of settings.
Read `uri.py` and `file.py` first.
"""
