"""The schema registry of Avro: where it is, what is asked of it, what a topic may hold. Only `client` and `cache` do IO."""
