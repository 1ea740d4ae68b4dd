"""Reads topics of a changefeed and applies them: the missing half of at-least-once.

reading        message → events, for every protocol that is understood
order/         the state machine: duplicates, order, the frontier of resolved ts, DDLs once
               events above the frontier, in memory and beyond a quota on disk; what a restart goes on from
targets        where rows go: tables, or messages again
kafka, run     the consumer as a process (IO)
spark          the same behind Structured Streaming
"""
