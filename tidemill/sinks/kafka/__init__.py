"""`kafka://`: tasks send rows through librdkafka's C interface; the driver sends everything else through its Python client."""
