"""Canal's MQ mode as functions on entries: flat messages (canal-json), their partitions and their topics. Pure.

In: entries, as a client gets them. Out: what Canal's server would send to Kafka for them. `messages.py` makes messages, `routing.py` reads
`canal.mq.partitionHash` and `canal.mq.dynamicTopic`, `javatext.py` writes numbers and hashes as Java does. Read `messages.py` first.
"""

from tidemill.canal.flat.javatext import java_double, java_float, java_hash
from tidemill.canal.flat.messages import FlatMessage, flat_messages, mq_packet, parse_entries
from tidemill.canal.flat.routing import DynamicTopics, PartitionHash

__all__ = [
    "DynamicTopics",
    "FlatMessage",
    "PartitionHash",
    "flat_messages",
    "java_double",
    "java_float",
    "java_hash",
    "mq_packet",
    "parse_entries",
]
