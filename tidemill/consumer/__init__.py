"""Reads topics of a changefeed and applies them: the missing half of at-least-once.

reading        message → events, for every protocol that is understood
ordering       the state machine: duplicates, order, the frontier of resolved ts, DDLs once
pending        events above the frontier, in memory and beyond a quota on disk
progress       what is kept with the data so that a restart goes on exactly where it stopped
targets        where rows go: tables, or messages again
kafka, run     the consumer as a process (IO)
spark          the same behind Structured Streaming
"""
