"""Parameters, scratch and addresses in C.

In:  the outline of a program.
Out: C text of its signature and its declarations.
"""

from __future__ import annotations

from kernelet.base.dtype import DType, dtypes
from kernelet.graph.uop import UOp
from kernelet.render.c_helpers import Prelude
from kernelet.render.c_types import scalar_name
from kernelet.render.renderer import Outline, array_bytes, register_name


def signature(outline: Outline, name: str) -> str:
    """`void NAME(pointers, variables, bounds of the thread loop)`."""
    parts = []
    for slot, parameter in enumerate(outline.parameters):
        if parameter is None:
            parts.append(f"const void* unused{slot}")
            continue
        constant = "" if parameter in outline.stored else "const "
        kind = scalar_name(parameter.dtype)
        parts.append(f"{constant}{kind}* {outline.names[parameter]}")
    parts += [f"long long {outline.names[variable]}" for variable in outline.variables]
    parts += ["long long thread_begin", "long long thread_end"]
    return f"void {name}({', '.join(parts)})"


def scratch_lines(outline: Outline, prelude: Prelude) -> list[str]:
    """Declarations of all scratch, at the start of the function."""
    lines = []
    in_heap = outline.is_in_heap
    if in_heap:
        lines.append(f"char* const heap = (char*)__builtin_malloc({outline.scratch_bytes() + 64});")
        lines.append("char* next = heap + (-(unsigned long long)heap & 63);")
    for memory in outline.scratch:
        name, kind = outline.names[memory], scalar_name(memory.dtype)
        if memory.arg.register:
            offsets = outline.registers.get(memory, ())
            names = ", ".join(register_name(name, memory, offset) for offset in offsets)
            if names:
                lines.append(f"{prelude.type(register_dtype(memory))} {names};")
        elif in_heap:
            lines.append(f"{kind}* const {name} = ({kind}*)next;")
            lines.append(f"next += {array_bytes(memory)};")
        else:
            size = memory.arg.size * memory.dtype.lanes
            lines.append(f"{kind} {name}[{size}] __attribute__((aligned(64)));")
    return lines


def register_dtype(memory: UOp) -> DType:
    """What a register of that scratch holds: masks of bytes for vector bools."""
    dtype = memory.dtype
    return memory_dtype(dtype) if dtype.lanes > 1 else dtype


def memory_dtype(dtype: DType) -> DType:
    """What lanes are in memory: bools are bytes there."""
    return dtypes.int8.vec(dtype.lanes) if dtype.is_bool else dtype


def lane_address(name: str, offset: str, dtype: DType) -> str:
    """The address from which lanes are accessed one by one."""
    return f"{'(signed char*)' if dtype.is_bool else ''}({name} + {offset})"
