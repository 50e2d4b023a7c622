"""What the languages share: the outline of a program, its names, indented lines.

In:  a linear program: nodes in order, each after its sources, with RANGE ... END as loops.
Out: `Outline`, `Walker` and `Lines`, from which a renderer writes the source of one function.

A renderer is a function `render(program, name) -> str`. The function that it writes takes a
pointer for each PARAM, an integer for each VARIABLE, then the first index and the end of the
thread loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import InternalError
from kernelet.base.helpers import round_up
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp

Render = Callable[[Sequence[UOp], str], str]

STACK_BYTES = 1 << 20  # scratch above this comes from the heap
BOOL_OPERATIONS = {Op.ADD: Op.OR, Op.MUL: Op.AND, Op.MAX: Op.OR, Op.SUB: Op.XOR, Op.CMPNE: Op.XOR}
_DECLARATIONS = frozenset({Op.PARAM, Op.VARIABLE, Op.SCRATCH, Op.CONST})


@dataclass(frozen=True, slots=True)
class Outline:
    """What a program declares before its first statement.

    `parameters` has None for a slot that the program does not use. `names` covers parameters,
    variables, scratch and loops; `uses` counts, for each place in the list, how often its value
    is read; `registers` lists the elements of register scratch that occur; `gated` holds the
    addresses that are only valid where a gate is true.
    """

    parameters: tuple[UOp | None, ...]
    variables: tuple[UOp, ...]
    scratch: tuple[UOp, ...]
    stored: frozenset[UOp]
    gated: frozenset[UOp]
    registers: dict[UOp, tuple[int, ...]]
    names: dict[UOp, str]
    uses: tuple[int, ...]

    def arrays(self) -> tuple[UOp, ...]:
        """The scratch that has addresses."""
        return tuple(node for node in self.scratch if not node.arg.register)

    def scratch_bytes(self) -> int:
        """The bytes of all arrays together, each from a multiple of 64."""
        return sum(array_bytes(node) for node in self.arrays())

    @property
    def is_in_heap(self) -> bool:
        """Whether the arrays are too large for the stack."""
        return self.scratch_bytes() > STACK_BYTES


def outline(program: Sequence[UOp]) -> Outline:
    """Read a program once and name what it declares."""
    by_slot = {node.arg.slot: node for node in _of(program, Op.PARAM)}
    accesses = [node for node in program if node.op in (Op.LOAD, Op.STORE)]
    stored = frozenset(node.src[0].src[0] for node in accesses if node.op is Op.STORE)
    registers: dict[UOp, set[int]] = {}
    for node in program:
        if node.op is Op.INDEX and is_register(node.src[0]):
            registers.setdefault(node.src[0], set()).add(register_offset(node))
    return Outline(
        tuple(by_slot.get(slot) for slot in range(max(by_slot, default=-1) + 1)),
        tuple(_of(program, Op.VARIABLE)),
        tuple(_of(program, Op.SCRATCH)),
        stored,
        frozenset(node.src[0] for node in accesses if gate_of(node) is not None),
        {memory: tuple(sorted(offsets)) for memory, offsets in registers.items()},
        _names(program, stored),
        _uses(program),
    )


def _of(program: Sequence[UOp], op: Op) -> list[UOp]:
    return list(dict.fromkeys(node for node in program if node.op is op))


def _uses(program: Sequence[UOp]) -> tuple[int, ...]:
    # A node may stand in the list again, to be computed anew: a LOAD after a STORE, for one.
    uses = [0] * len(program)
    latest: dict[UOp, int] = {}
    for position, node in enumerate(program):
        for source in _sources_read(node):
            if source in latest:
                uses[latest[source]] += 1
        latest[node] = position
    return tuple(uses)


def _sources_read(node: UOp) -> tuple[UOp, ...]:
    gate = gate_of(node) if node.op in (Op.LOAD, Op.STORE) else None
    if gate is not None:
        return (*node.src[:-1], gate)
    return node.src if repeated_source(node) is None else node.src[:1]


def _names(program: Sequence[UOp], stored: frozenset[UOp]) -> dict[UOp, str]:
    names: dict[UOp, str] = {}
    taken = {"thread_begin", "thread_end"}
    for node in dict.fromkeys(program):
        name = _first_choice(node, node in stored)
        if not name:
            continue
        unique, count = name, 1
        while unique in taken:
            count += 1
            unique = f"{name}_{count}"
        taken.add(unique)
        names[node] = unique
    return names


def _first_choice(node: UOp, is_stored: bool) -> str:
    if node.op is Op.PARAM:
        return f"{'out' if is_stored else 'in'}{node.arg.slot}"
    if node.op is Op.VARIABLE:
        letters = (
            letter if letter.isascii() and letter.isalnum() else "_" for letter in node.arg.name
        )
        return "n_" + "".join(letters)
    if node.op is Op.RANGE:
        return f"{'r' if node.arg.kind == 'reduce' else 'i'}{node.arg.number}"
    if node.op is Op.SCRATCH:
        return f"{'acc' if node.arg.register else 'scratch'}{node.arg.number}"
    return ""


def is_register(memory: UOp) -> bool:
    """Whether a memory is scratch that is kept in variables."""
    return memory.op is Op.SCRATCH and memory.arg.register is True


def register_name(name: str, memory: UOp, offset: int) -> str:
    """The variable that holds one element of register scratch."""
    return name if memory.arg.size == 1 else f"{name}_{offset}"


def register_offset(index: UOp) -> int:
    """The element of register scratch that an INDEX names."""
    offset = index.src[1]
    if offset.op is not Op.CONST:
        raise_unexpected(index, "the offset into register scratch is not a constant")
    return int(offset.arg)


def array_bytes(memory: UOp) -> int:
    """The size of a scratch array, up to a multiple of 64."""
    return round_up(memory.arg.size * memory.dtype.lanes * memory.dtype.itemsize, 64)


def gate_of(access: UOp) -> UOp | None:
    """The gate of a LOAD or a STORE: one flag a lane, or one for all where lanes are the same.

    None where there is no gate or it is always true.
    """
    position = 1 if access.op is Op.LOAD else 2
    if len(access.src) <= position:
        return None
    gate = access.src[position]
    if gate.op is Op.CONST and gate.arg:
        return None
    scalar = repeated_source(gate)
    return gate if scalar is None else scalar


def repeated_source(node: UOp) -> UOp | None:
    """The scalar that every lane of a VECTORIZE has; None where lanes differ."""
    if node.op is not Op.VECTORIZE or any(source is not node.src[0] for source in node.src):
        return None
    return node.src[0]


def bits_dtype(dtype: DType) -> DType:
    """The dtype that registers hold: narrow floats are their bits, an index is an int64."""
    if dtype.is_float and dtype.itemsize < 4:
        return (dtypes.uint16 if dtype.itemsize == 2 else dtypes.uint8).vec(dtype.lanes)
    if dtype.scalar is dtypes.index:
        return dtypes.int64.vec(dtype.lanes)
    return dtype


def safe_divisor(divisor: UOp) -> bool:
    """Whether a division by this neither divides by zero nor overflows."""
    return divisor.bounds.min > 0 or divisor.bounds.max < -1


def raise_unexpected(node: UOp, reason: str) -> NoReturn:
    """Report a node that a linear program must not have."""
    sources = ", ".join(f"{source.op.name} {source.dtype}" for source in node.src)
    raise InternalError(
        f"render: {node.op.name} {node.dtype} of ({sources}): {reason}. "
        "The linear program is wrong: print it with DEBUG=5."
    )


class Walker(ABC):
    """Goes through a program once and tells a language what to write.

    `values` has the text of what was computed so far; `addresses` has, for each INDEX, memory and
    offset, where no offset means a register.
    """

    def __init__(self, program: Sequence[UOp], name: str, prefix: str = "") -> None:
        self.name = name
        self.outline = outline(program)
        self.values = {node: prefix + text for node, text in self.outline.names.items()}
        self.addresses: dict[UOp, tuple[str, str]] = {}
        self._program = program
        self._count = 0

    @abstractmethod
    def open_loop(self, node: UOp) -> None:
        """Write the head of the loop of a RANGE."""

    @abstractmethod
    def close_loop(self, node: UOp) -> None:
        """Write the end of the loop of a RANGE."""

    @abstractmethod
    def address(self, node: UOp, uses: int) -> str:
        """The text that stands for the offset of an INDEX into memory."""

    @abstractmethod
    def store(self, node: UOp) -> None:
        """Write a STORE."""

    @abstractmethod
    def compute(self, node: UOp, uses: int) -> None:
        """Write a LOAD or an expression, or keep it until it is used."""

    def walk(self) -> None:
        """Write all statements."""
        for node, uses in zip(self._program, self.outline.uses, strict=True):
            if node.op in _DECLARATIONS:
                continue
            if node.op is Op.RANGE:
                self.open_loop(node)
            elif node.op is Op.END:
                self.close_loop(node.src[0])
            elif node.op is Op.INDEX:
                memory = node.src[0]
                name = self.values[memory]
                if is_register(memory):
                    register = register_name(name, memory, register_offset(node))
                    self.addresses[node] = (register, "")
                else:
                    self.addresses[node] = (name, self.address(node, uses))
            elif node.op is Op.STORE:
                self.store(node)
            elif uses:
                self.compute(node, uses)

    def fresh(self) -> str:
        """A name that no other value has."""
        self._count += 1
        return f"v{self._count - 1}"

    def value_of(self, node: UOp) -> str:
        """The text of a value that was computed before."""
        if node not in self.values:
            raise_unexpected(node, "it is used before it is computed")
        return self.values[node]


class Lines:
    """Text that grows line by line, with the indentation of the open blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._is_empty = False

    def add(self, text: str) -> None:
        """Append one line at the current depth."""
        self._lines.append("    " * self._depth + text if text else "")
        self._is_empty = False

    def open(self, text: str) -> None:
        """Append a line and indent what follows."""
        self.add(text)
        self._depth += 1
        self._is_empty = True

    def close(self, text: str = "", if_empty: str = "") -> None:
        """Indent less, and append a line if one is given; fill a block that has no line."""
        if if_empty and self._is_empty:
            self.add(if_empty)
        self._depth -= 1
        self._is_empty = False
        if text:
            self.add(text)

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"
