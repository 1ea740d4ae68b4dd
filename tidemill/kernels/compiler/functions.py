"""Functions that are compiled: parts, which only kernels call, and the source that they are translated from."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from tidemill.kernels.compiler.primitives import Primitive
from tidemill.kernels.compiler.values import KernelError


class Part:
    """A function that kernels call. It is compiled once for each list of kinds of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        assert isinstance(function, FunctionType)
        self.function = function
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__

    @property
    def name(self) -> str:
        """Its name with its module's."""
        return f"{self.function.__module__}.{self.function.__name__}"

    @property
    def names(self) -> Mapping[str, Any]:
        """What the function sees outside itself."""
        return self.function.__globals__

    def source(self) -> ast.FunctionDef:
        """Its source. Raises KernelError."""
        code = self.function.__code__
        found = _functions(code.co_filename, "".join(linecache.getlines(code.co_filename, self.function.__globals__)))
        if code.co_firstlineno not in found:
            raise KernelError(f"the source of {self.name} was not found in {code.co_filename}")
        return found[code.co_firstlineno]

    def mentioned(self) -> Iterator[tuple[str, object]]:
        """Parts, operations and constants that the function mentions, by name: its own and those of modules that it names."""
        names = self.function.__code__.co_names
        for name in names:
            found = self.names.get(name)
            if isinstance(found, ModuleType):
                for attribute in names:
                    if hasattr(found, attribute):
                        yield f"{name}.{attribute}", getattr(found, attribute)
            elif found is not None:
                yield name, found

    def all_parts(self) -> dict[str, Part]:
        """This one and all that it calls, by name."""
        found: dict[str, Part] = {}
        waiting: list[Part] = [self]
        while waiting:
            part = waiting.pop()
            if part.name not in found:
                found[part.name] = part
                waiting += [other for _, other in part.mentioned() if isinstance(other, Part)]
        return found

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.name} is a part of kernels: only they can call it")


@functools.cache
def _functions(file: str, text: str) -> dict[int, ast.FunctionDef]:
    """The functions of a module by their first line, which is that of a decorator."""
    found = (node for node in ast.walk(ast.parse(text, file)) if isinstance(node, ast.FunctionDef))
    return {min([node.lineno, *(d.lineno for d in node.decorator_list)]): node for node in found}


def constants_of(part: Part) -> Iterator[str]:
    """A line for each constant and operation that a part mentions."""
    for name, found in part.mentioned():
        if isinstance(found, Primitive):
            yield f"{name} = {found.text}"
        elif isinstance(found, int | float) or hasattr(found, "dtype"):
            yield f"{name} = {type(found).__name__} {found!r}"
