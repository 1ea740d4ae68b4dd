"""Spark finds `format("tidemill.catalog")` by this module's name. See `tidemill.spark.found`."""

from tidemill.spark.found import Catalog as DefaultSource

__all__ = ["DefaultSource"]
