"""`tidemill cli`: TiCDC's `cdc cli`, with its flags, its JSON, its messages and its exit codes, against a `tidemill server`.

In: a command line. Out: requests to the server's HTTP API, and text. Read `client` first, then `changefeeds`. The short verbs,
`tidemill changefeed …`, use the same client.
"""
