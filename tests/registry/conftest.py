from tests.support.servers.registries import front, memory, registry

__all__ = ["front", "memory", "registry"]
