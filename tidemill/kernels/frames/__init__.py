"""Open Protocol messages of a batch → their events' JSON texts, one a line. For the readers in `protocols.open.columnar`."""
