"""Rows of the change log → text messages (JSON, CSV), one message a row, in compiled code driven by a program for each table version.

In: ROW records grouped by target. Out: MESSAGE records. The kernels of Canal-JSON, CSV and simple are programs for it.
Read `program.py`, then `template_kernel.py`.
"""
