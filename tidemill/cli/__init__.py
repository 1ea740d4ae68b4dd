"""The command line: one module a verb. Nothing else imports it. Read `main.py` first."""
