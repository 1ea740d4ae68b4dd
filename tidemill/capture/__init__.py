"""From an upstream to the change log."""
