"""The consumer: reads a changefeed's topics, drops repeats, and applies transactions and DDLs in commit order.

reading        message → events, for every protocol that it supports
order/         the state machine: duplicates, order, the frontier of resolved ts, DDLs once;
               events above the frontier, in memory and beyond a quota on disk; progress for a restart
targets        the targets: tables, or messages again
kafka, run     the consumer as a process (IO)
spark          the same with Structured Streaming

In: messages of topics. Out: rows and DDLs in tables, messages of another sink, lines for people. Read `reading.py`, then `run.py`.
"""
