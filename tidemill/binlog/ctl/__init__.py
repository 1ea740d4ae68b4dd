"""What an operator does with Pumps and Drainers from outside. In: a command. Out: lines as those of the real binlogctl.

Read `commands.py`: it has them all, reads and writes the registry, and asks nodes by HTTP.
"""
