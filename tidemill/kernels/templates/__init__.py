"""Rows of the change log → text messages (JSON, CSV), one for each row. One kernel runs a program for each table version.

In: ROW records grouped by target. Out: MESSAGE records. Canal-JSON, CSV, simple and Debezium compile their programs for this kernel.
Read `program.py`, then `template_kernel.py`.
"""
