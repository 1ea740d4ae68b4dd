from tests.support.registries import front, memory, registry

__all__ = ["front", "memory", "registry"]
