"""Rows of the change log → Canal-JSON, on the kernels of `texts`."""

from tidemill.kernels.canal_json.encoder import CanalJsonRowEncoder

__all__ = ["CanalJsonRowEncoder"]
