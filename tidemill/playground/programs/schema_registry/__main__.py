"""`python -m tidemill.playground.programs.schema_registry`: fetch the registry's program, so that later starts need no network."""

from tidemill.playground.programs.maven import told
from tidemill.playground.programs.schema_registry.registry import program

print(told("schema registry", program()))
