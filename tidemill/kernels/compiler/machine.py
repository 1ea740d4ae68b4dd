"""LLVM's text → object code of this machine, and object code → functions that can be called."""

from __future__ import annotations

import functools
import os
from typing import Any

import llvmlite.binding as llvm

CPU = "TIDEMILL_KERNEL_CPU"
"""Environment variable with LLVM's name of a processor: kernels are compiled for it, not for this one. `generic` runs on all."""


def processor() -> tuple[str, str]:
    """The name of the processor that kernels are for, and its features as LLVM writes them."""
    if named := os.environ.get(CPU):
        return named, ""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def compiled_for() -> str:
    """All that object code depends on besides its text."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return "\n".join([version, llvm.get_process_triple(), *processor()])


def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = processor()
    triple = llvm.get_process_triple()
    relocation = "static" if triple.startswith("x86") else "default"
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(cpu=name, features=features, opt=3, reloc=relocation, codemodel="jitdefault", jit=True)


def object_code(text: str) -> bytes:
    """Compile a module."""
    machine = _target()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    found: bytes = machine.emit_object(module)
    return found


class Loaded:
    """Object code in this process. It stays until the process ends."""

    def __init__(self, code: bytes) -> None:
        machine = _target()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """Where a function is. 0: there is none of that name."""
        found: int = self._engine.get_function_address(symbol)
        return found
