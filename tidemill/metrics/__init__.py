"""What a process tells of itself over HTTP: /status as JSON and /metrics for Prometheus.

In: functions that give a status or samples. Out: pages.
Read `http.py` first.
"""
