"""Column functions for Spark, by the name that people look for. They are those of `tidemill.spark`.

from tidemill.functions import from_canal, from_canal_json, from_confluent_avro, from_open_protocol
"""

from tidemill.spark import from_canal, from_canal_json, from_confluent_avro, from_open_protocol

__all__ = ["from_canal", "from_canal_json", "from_confluent_avro", "from_open_protocol"]
