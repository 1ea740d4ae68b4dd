from tests.support.registries import registry

__all__ = ["registry"]
