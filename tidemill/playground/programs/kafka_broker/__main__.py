"""`python -m tidemill.playground.programs.kafka_broker`: fetch the broker's jars, so that later starts need no network."""

from tidemill.playground.programs.kafka_broker.jars import jars

print(jars())
