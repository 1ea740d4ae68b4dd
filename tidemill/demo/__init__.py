"""`tidemill demo`: a playground, a run and an auditor that compares what arrived with what was written. Read `session.py` first."""
