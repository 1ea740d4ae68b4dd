"""For `spark.python.daemon.module`: loads everything that a task needs once, before Spark forks the workers from this process."""

import gc

from pyspark import daemon

# pyspark's workers run gc.collect() after every task, over all objects of the modules that are loaded here. The collector skips frozen
# objects, and the forked workers go on sharing their memory.
gc.collect()
gc.freeze()

if __name__ == "__main__":
    daemon.manager()
