"""From an upstream to the change log."""

import os

# gRPC's handlers around a fork do nothing while its threads run but tell so on stderr, and no child here goes on with a parent's channels.
# Read when gRPC is loaded, which only modules below this one do.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
