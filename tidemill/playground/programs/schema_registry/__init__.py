"""A schema registry (Apicurio, in memory) for the tests. Never for data that matters."""

from tidemill.playground.programs.schema_registry.registry import RegistryProcess, program

__all__ = ["RegistryProcess", "program"]
