"""Where a change log lies.

In: names, bytes, drafts of segments. Out: files that appear whole and stay.
`base.py` says what a log asks of its place, `open.py` opens a local folder or a file system that pyarrow knows, `s3.py` adds conditional
requests, `conditional.py` compare-and-set on top of them, `flock.py` the short lock of a local folder.
Read `base.py` first.
"""
