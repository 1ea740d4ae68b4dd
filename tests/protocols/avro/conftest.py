from tests.support.registries import front, memory

__all__ = ["front", "memory"]
