"""What the rest of Tidemill knows of each protocol: one `ProtocolSpec` a module; `protocols/all.py` lists them.

They are not in the protocols' own packages, because importing one of those loads its encoder and decoder. Every process that reads a sink
URI asks for the specs, and most of them encode nothing.

In: nothing. Out: the specs. Read `open.py` first.
"""
