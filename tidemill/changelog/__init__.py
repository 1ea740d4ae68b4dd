"""The change log: durable, complete, de-duplicated, replayable. Format: docs/change-log-format.md."""
