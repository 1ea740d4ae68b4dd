"""`tidemill demo`: a playground, a run and an auditor that compares what arrived with what was written. Read `session.py` first.

In: flags. Out: lines that say what happens, and whether upstream and downstream are equal.
"""
