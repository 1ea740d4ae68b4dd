"""Python imports this by itself when it starts with this folder on its PYTHONPATH: that process notices sooner that storage is away.

Tests of storage that goes away take so much less time. Only times differ: of a request without an answer, and between two attempts.
"""

from tidemill.changelog.storage import retry, s3
from tidemill.delivery import loop
from tidemill.delivery.inputs import log_heads

s3.CONNECT_TIMEOUT_S, s3.READ_TIMEOUT_S = 2.0, 3.0
retry.LONGEST_S = 4.0
loop.LONGEST_AWAY_S = 4.0
log_heads.AWAY_POLL_S = 4.0
