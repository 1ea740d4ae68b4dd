"""`python -m tidemill.playground.schema_registry`: fetch the registry's program, so that later starts need no network."""

from tidemill.playground.schema_registry.registry import program

print(program())
