"""Entry points: kernels that Python calls. `entry(n)` takes n int64 and returns an int64.

The entry points of a module are compiled together when the first of them is called, or with `load`, and kept in the cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import linecache
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsIndex

from tidemill.kernels.cache import cache
from tidemill.kernels.compiler import functions, machine, primitives, translate, values
from tidemill.kernels.compiler.functions import Part, constants_of
from tidemill.kernels.compiler.values import INT, NONE

_COMPILER = (functions, machine, primitives, translate, values)


class Entry:
    """A kernel that Python calls with integers. Without `result` it returns nothing: a callback of a C library."""

    def __init__(self, function: Callable[..., Any], arguments: int, *, result: bool = True) -> None:
        self.part, self.result = Part(function), INT if result else NONE
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self._shape = ctypes.CFUNCTYPE(ctypes.c_int64 if result else None, *[ctypes.c_int64] * arguments)
        self._call: Any = None
        self._address = 0
        _GROUPS.setdefault(function.__module__, []).append(self)

    @property
    def address(self) -> int:
        """Where its machine code is."""
        if self._call is None:
            load(self.__module__)
        return self._address

    def __call__(self, *arguments: SupportsIndex) -> Any:
        if self._call is None:
            load(self.__module__)
        try:
            return self._call(*arguments)
        except ctypes.ArgumentError:  # integers of numpy
            return self._call(*map(operator.index, arguments))

    def _place(self, address: int) -> None:
        self._address = address
        self._call = self._shape(address)


_GROUPS: dict[str, list[Entry]] = {}
"""Entry points by module."""
_loaded: dict[str, list[machine.Loaded]] = {}
"""Their machine code. Two threads may load a module at once: both copies stay."""
_digests: dict[str, str] = {}
"""Hashes of sources by file."""


def jit(function: Callable[..., Any]) -> Part:
    """Decorator of a function that only kernels call."""
    return Part(function)


def entry(arguments: int) -> Callable[[Callable[..., Any]], Entry]:
    """Return the decorator of an entry point with so many arguments."""
    return lambda function: Entry(function, arguments)


def callback(arguments: int) -> Callable[[Callable[..., Any]], Entry]:
    """Return the decorator of an entry point that returns nothing. Its `address` is for a C library."""
    return lambda function: Entry(function, arguments, result=False)


def load(module: str) -> None:
    """Load the entry points of a module, compiled now or by an earlier process. Raises KernelError, ConfigError."""
    if module in _loaded:
        return
    kept, name = cache(), file_name(module)
    code = kept.get(name)
    if code is None:
        with kept.alone(module):
            code = kept.get(name)
            if code is None:
                kept.tell()
                code = machine.object_code(text_of(module))
                kept.put(name, code)
    found = machine.Loaded(code)
    for each in _GROUPS[module]:
        each._place(found.address(each.__name__))
    _loaded.setdefault(module, []).append(found)


def load_imported() -> int:
    """Load the entry points of all modules that are imported. Returns the number of modules."""
    for module in list(_GROUPS):
        load(module)
    return len(_GROUPS)


def modules() -> list[str]:
    """The modules with entry points that are imported."""
    return list(_GROUPS)


def parts_of(module: str) -> dict[str, Part]:
    """The entry points of a module and all that they call, by name."""
    found: dict[str, Part] = {}
    for each in _GROUPS[module]:
        found |= each.part.all_parts()
    return found


def text_of(module: str) -> str:
    """The entry points of a module and all that they call, in LLVM's text. Raises KernelError."""
    made = translate.Module()
    for each in _GROUPS[module]:
        made.add_entry(each.part, each.__name__, each.result)
    return made.text


def is_compiled(module: str) -> bool:
    """Whether the cache has the entry points of a module."""
    return cache().get(file_name(module)) is not None


def file_name(module: str) -> str:
    """The name of the file with a module's object code. It changes with all that the code depends on."""
    digest = hashlib.sha256("\n".join([machine.compiled_for(), *_depends_on(module)]).encode())
    return f"{module.removeprefix('tidemill.kernels.')}-{digest.hexdigest()[:24]}.o"


def _depends_on(module: str) -> Iterator[str]:
    """Hashes of the sources of the compiler and of all parts, and the constants that they take from elsewhere."""
    for one in _COMPILER:
        yield _digest(str(one.__file__), vars(one))
    for each in _GROUPS[module]:
        yield f"{each.__name__} {each.result}"
    parts = parts_of(module)
    yield from sorted({_digest(part.function.__code__.co_filename, part.names) for part in parts.values()})
    for name in sorted(parts):
        yield name
        yield from sorted(constants_of(parts[name]))


def _digest(file: str, names: Mapping[str, Any]) -> str:
    """The hash of a module's source, which may lie in an archive."""
    if file not in _digests:
        _digests[file] = hashlib.sha256("".join(linecache.getlines(file, dict(names))).encode()).hexdigest()
    return _digests[file]
