"""The HTTP API of `tidemill server`: TiCDC's API v2, so that `cdc cli`, scripts and TiDB Operator work against it.

In: HTTP requests. Out: calls of a `ChangefeedService`, and its answers as TiCDC writes them. `app.create_app` puts it together; `listener`
serves it. Read `bodies` (what goes in and out) and `errors` (codes and statuses) first, then the routes in `routes/`.
"""

from tidemill.extras import extra

with extra("server"):
    from tidemill.server.api.app import create_app as create_app
