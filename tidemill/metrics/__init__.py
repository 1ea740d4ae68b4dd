"""The status of a process over HTTP: /status as JSON and /metrics for Prometheus.

In: functions that return a status or samples. Out: pages.
Read `http.py` first.
"""
