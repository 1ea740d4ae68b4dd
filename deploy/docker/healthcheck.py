"""Whether the Tidemill of this container is well: its page answers, and its process of capture or delivery is not gone for good.

It asks http://$TIDEMILL_STATUS_ADDR/status, or $TIDEMILL_STATUS_PATH in its place: of a server /api/v2/status. A failed
changefeed does not make the container unhealthy: a restart would not help.
"""

import json
import os
import sys
import urllib.request

ADDRESS = os.environ.get("TIDEMILL_STATUS_ADDR", "127.0.0.1:8301")
PATH = os.environ.get("TIDEMILL_STATUS_PATH", "/status")
GONE = ("stopped", "failed")


def main() -> int:
    """Return 0 if it is well, else 1 and say why."""
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}{PATH}", timeout=4) as answer:
            status = json.load(answer)
    except (OSError, ValueError) as error:
        print(f"no status at {ADDRESS}: {error}")
        return 1
    state = status.get("run") or status.get("state")
    print(f"state {state}")
    return 1 if state in GONE else 0


if __name__ == "__main__":
    sys.exit(main())
