"""`kafka://`: tasks send rows through librdkafka's C interface; the driver sends everything else through its Python client.

In: MESSAGE records and targets. Out: acknowledged messages. Read `task.py`, then `driver.py`.
"""
