"""The server of Canal's protocol: one asyncio process that reads an entry store and serves its clients.

In: an entry store, sockets. Out: entries, files with the clients' places in the store's folder.
`server.py` puts the parts together: `connection.py` a socket and its conversation, `reading.py` entries and the store's head, `saving.py`
places, `settings.py` and `properties.py` what can be set, `pages.py` /status and /metrics. Read `server.py` first.
"""
