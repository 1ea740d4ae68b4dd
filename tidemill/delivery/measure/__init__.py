"""How long batches and their parts take, told by the driver once for each of its requests.

In: requests of the batch machine with their seconds, statistics of tasks. Out: histograms, and spans where traces are asked for.
Read `timings.py` first.
"""
