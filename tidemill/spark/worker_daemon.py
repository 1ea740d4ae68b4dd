"""For `spark.python.daemon.module`: everything a task needs is loaded once, before the workers are forked from this process."""

import gc

from pyspark import daemon

# pyspark's workers run gc.collect() after every task; over the objects of numba and llvmlite that takes 45 to 65 ms of CPU.
# Frozen objects are not looked at, and stay shared between the forked workers.
gc.collect()
gc.freeze()

if __name__ == "__main__":
    daemon.manager()
