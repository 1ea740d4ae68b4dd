"""The storage of a change log.

In: names, bytes, drafts of segments. Out: files that appear atomically and stay.
`base.py` defines the operations that a log needs. `open.py` opens a local folder or a file system that pyarrow knows. `s3.py` adds
conditional requests, `conditional.py` compare-and-swap on top of them, `flock.py` the short lock of a local folder. Read `base.py` first.
"""
