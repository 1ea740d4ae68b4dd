"""Processes of a run: the supervisor, how a child notices its parent's end, addresses of this machine.

In: command lines. Out: children that are started again when they die.
Read `supervisor.py` first.
"""
