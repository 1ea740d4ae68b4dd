"""Column functions for Spark: messages of TiCDC and Tidemill → rows. They need pyspark and run in Arrow batches.

    from tidemill.spark import from_canal_json, from_confluent_avro, from_open_protocol

Each protocol has a module of its own.
"""

from tidemill.spark.avro import from_confluent_avro
from tidemill.spark.canal_json import from_canal_json
from tidemill.spark.open_protocol import from_open_protocol

__all__ = ["from_canal_json", "from_confluent_avro", "from_open_protocol"]
