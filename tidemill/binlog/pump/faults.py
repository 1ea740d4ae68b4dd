"""What can go wrong in a Pump."""

from __future__ import annotations

from tidemill.errors import TidemillError


class PumpRefused(TidemillError):
    """A binlog is not taken: wrong cluster, wrong state, no space."""

    code = "TM:ErrPumpRefused"


class PumpCorrupt(TidemillError):
    """A record that the index names is not in the value log, or not as it was written."""

    code = "TM:ErrPumpCorrupt"


class PumpFailed(TidemillError):
    """The disk did not keep what was written. What was not answered is not promised; a restart reads what is there."""

    code = "TM:ErrPumpFailed"
    retryable = True


class BinlogsGone(TidemillError):
    """A Drainer asks for binlogs that were collected as garbage."""

    code = "TM:ErrBinlogsGone"


class DrainerSilent(TidemillError):
    """A Drainer that says online does not answer a new Pump."""

    code = "TM:ErrDrainerSilent"
    retryable = True
