"""Rows of the change log → messages of text (JSON, CSV), one message a row, in compiled code driven by a program for each table version."""
