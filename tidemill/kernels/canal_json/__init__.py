"""Rows of the change log → Canal-JSON, on the kernels of `templates`."""

from tidemill.kernels.canal_json.encoder import CanalJsonRowEncoder

__all__ = ["CanalJsonRowEncoder"]
