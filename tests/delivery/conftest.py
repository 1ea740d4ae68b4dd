from tests.support.servers.registries import front, memory

__all__ = ["front", "memory"]
