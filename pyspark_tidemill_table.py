"""Spark finds `format("tidemill.table")` by this module's name. See `tidemill.spark.found`."""

from tidemill.spark.found import Tables as DefaultSource

__all__ = ["DefaultSource"]
