"""What benchmarks note, and the page that is made of it.

In: figures that a benchmark notes as it runs. Out: a file of JSON lines, and from it one HTML page with tables and plots. Read `figures.py`
first, then `page.py`; `limits.py` measures what the machine itself needs for the same bytes.
"""
