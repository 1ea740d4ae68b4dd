"""A capture in several processes: groups of partitions, each pulled by a process or a Spark task, and a coordinator with the schema stream.

In: the partitions of a log. Out: attempts of groups, each with its partitions. `scheduler.py` is the state machine that starts and replaces
them, `manager.py` carries out what it says, `group.py` is one group. Read `scheduler.py` first.
"""
