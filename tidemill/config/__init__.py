"""A changefeed's settings: the sink URI and the TOML file, with TiCDC's names, types and defaults.

In: text. Out: checked, frozen settings, or every fault of the text with what to do.
`parameters.py` and `sections.py` are the tables of what may be set. Pure.
Read `uri.py` and `file.py` first.
"""
