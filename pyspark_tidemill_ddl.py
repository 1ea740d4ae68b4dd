"""Spark finds `format("tidemill.ddl")` by this module's name. See `tidemill.spark.found`."""

from tidemill.spark.found import Ddls as DefaultSource

__all__ = ["DefaultSource"]
