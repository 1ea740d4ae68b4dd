"""Capture of a live TiDB cluster from PD and TiKV."""
