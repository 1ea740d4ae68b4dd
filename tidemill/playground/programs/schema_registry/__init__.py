"""A schema registry (Apicurio, in memory) for the tests. Never for data that matters.

In: a folder. Out: a registry's URL. Read `registry.py`.
"""

from tidemill.playground.programs.schema_registry.registry import RegistryProcess, program

__all__ = ["RegistryProcess", "program"]
