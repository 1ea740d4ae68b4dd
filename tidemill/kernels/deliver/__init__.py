"""Message tables as sinks want them: librdkafka's message array, length-prefixed frames, JSON lines."""
