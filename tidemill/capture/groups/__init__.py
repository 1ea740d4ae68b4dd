"""A capture in several processes: groups of partitions, each pulled by a process or a Spark task, and a coordinator that has the schema."""
