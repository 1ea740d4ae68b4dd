"""A sink, a protocol, a source and a command for Tidemill."""
