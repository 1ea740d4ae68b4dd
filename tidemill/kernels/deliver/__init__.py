"""Message tables in the forms that sinks write: librdkafka's message array, length-prefixed frames, JSON lines."""
