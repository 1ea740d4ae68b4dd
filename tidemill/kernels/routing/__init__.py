"""What routing asks of a row's columns: did an update change a key, and what do they hash to?

In: ROW records. Out: a flag or a hash a row.
Read `identity.py` first.
"""
