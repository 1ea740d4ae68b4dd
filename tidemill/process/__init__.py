"""The processes of a run: the supervisor, how a child notices its parent's end, and addresses of this machine.

In: command lines and orders. Out: child processes that are started again when they die.
Read `supervisor.py` first, then `orders.py`: what a child is started with.
"""
