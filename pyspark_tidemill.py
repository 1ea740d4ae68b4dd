"""Spark finds `format("tidemill")` by this module's name. See `tidemill.spark.found`."""

from tidemill.spark.found import Changes as DefaultSource

__all__ = ["DefaultSource"]
