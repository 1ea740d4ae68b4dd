"""`kafka://`: rows leave the tasks through librdkafka's C interface, everything else the driver through its Python client."""
