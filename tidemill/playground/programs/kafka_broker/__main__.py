"""`python -m tidemill.playground.programs.kafka_broker`: fetch the broker's jars, so that later starts need no network,
and keep the classes of its Java, so that they take half the time."""

from tidemill.playground.programs.kafka_broker.broker import make_archive
from tidemill.playground.programs.kafka_broker.jars import jars
from tidemill.playground.programs.maven import told

print(told("Kafka broker", jars()))
make_archive()
