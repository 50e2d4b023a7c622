"""Compile rules to plain Python: one function for each kind of root node.

In:  the rules of a rule set, in order.
Out: a function from (node, ctx) to the first replacement, or None.

The text for `x + 0 -> x` at an ADD reads:

    def rewrite_ADD(node, ctx):
        s0, s1 = node.src
        o0 = s0.op; o1 = s1.op
        if (o0 in CONSTANT_OPS or o1 in CONSTANT_OPS) and node.dtype.name in dtypes1:
            for a1, a2 in ((s0, s1), (s1, s0)):
                if a2.op in CONSTANT_OPS:
                    k2 = a2.arg if a2.op is CONST else constant_value(a2)
                    if k2 is not None and k2 == 0:
                        return a1
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from kernelet.base.dtype import DType, dtypes
from kernelet.base.errors import ArgumentError
from kernelet.graph.fold import CONSTANT_OPS, constant_like, constant_value, fold
from kernelet.graph.ops import OP_TABLE, Op
from kernelet.graph.pattern import ANY_DTYPE, ANYTHING, Equation, PlaceholderArg, Rule, UPat
from kernelet.graph.uop import UOp

Matcher = Callable[[UOp, object], UOp | None]


def compile_matcher(op: Op, rules: Sequence[Rule | Equation]) -> Matcher | None:
    """The matcher of these rules for roots of kind `op`; None when none of them can fit."""
    writer = _write(op, rules)
    return writer.finish() if writer.lines else None


def matcher_source(op: Op, rules: Sequence[Rule | Equation]) -> str:
    """The Python text that `compile_matcher` makes."""
    return _write(op, rules).source()


def _write(op: Op, rules: Sequence[Rule | Equation]) -> _Writer:
    writer = _Writer(op)
    for rule in rules:
        if rule.pattern.ops is None or op in rule.pattern.ops:
            writer.write_rule(rule)
    return writer


_GLOBALS: dict[str, object] = {
    "CONST": Op.CONST,
    "CONSTANT_OPS": CONSTANT_OPS,
    "UOp": UOp,
    "constant_like": constant_like,
    "constant_value": constant_value,
    "copysign": math.copysign,
    "fold": fold,
    "permutations": itertools.permutations,
    "truth_like": lambda dtype: dtypes.bool.vec(dtype.lanes),
}


class _Writer:
    """Text written so far, and the objects that it refers to by name."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.lines: list[str] = []
        self.objects: dict[str, object] = dict(_GLOBALS)
        self.names: dict[int, str] = {id(value): name for name, value in _GLOBALS.items()}
        self.indent = 1
        self.counter = itertools.count(1)
        # The node that has the dtype of the equation being written.
        self.typed: str | None = None
        # The sources of an op with a fixed number of them are unpacked once for all rules.
        self.arity = OP_TABLE[op].arity if op in OP_TABLE else 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def test(self, conditions: Sequence[str]) -> None:
        """Go on under these conditions."""
        if conditions:
            self.line(f"if {' and '.join(conditions)}:")
            self.indent += 1

    def refer(self, value: object, hint: str) -> str:
        """A name for an object in the text."""
        known = self.names.get(id(value))
        if known is not None:
            return known
        name = hint if hint not in self.objects else f"{hint}{len(self.objects)}"
        self.objects[name] = value
        self.names[id(value)] = name
        return name

    def fresh(self, letter: str) -> str:
        return f"{letter}{next(self.counter)}"

    def source(self) -> str:
        head = [f"def rewrite_{self.op.name}(node, ctx):"]
        if self.arity:
            sources = "".join(f"s{i}, " for i in range(self.arity))
            head.append(f"    {sources}= node.src")
            head.extend(f"    o{i} = s{i}.op" for i in range(self.arity))
        return "\n".join([*head, *self.lines, "    return None", ""])

    def finish(self) -> Matcher:
        code = compile(self.source(), f"<rules for {self.op.name}>", "exec")
        exec(code, self.objects)
        matcher: Matcher = self.objects[f"rewrite_{self.op.name}"]  # type: ignore[assignment]
        return matcher

    # ---- left side ----

    def write_rule(self, rule: Rule | Equation) -> None:
        self.indent = 1
        self.typed = None
        self.line(f"# {rule.name}")
        bound: dict[str, str] = {}
        work: list[tuple[UPat, str]] = [(rule.pattern, "node")]
        while work:
            current, variable = work.pop(0)
            self.test(self._conditions(current, variable))
            if current.constant:
                self._constant(current, variable, bound)
                continue
            if current.name is not None:
                if current.name in bound:
                    self.test([f"{variable} is {bound[current.name]}"])
                bound.setdefault(current.name, variable)
            work.extend(self._sources(current, variable))
        if isinstance(rule, Equation):
            self._finish_equation(rule, bound)
        else:
            self._finish_function(rule, bound)

    def _conditions(self, pattern: UPat, variable: str) -> list[str]:
        conditions = []
        root = variable == "node"
        if pattern.constant or (pattern.ops is not None and not root):
            conditions.append(self._op_test(pattern, f"{variable}.op"))
        if root and self.arity == 2 and isinstance(pattern.src, list):
            # Most rules fail here, before any pair of sources is tried.
            for source in pattern.src:
                if source.constant or source.ops is not None:
                    either = [self._op_test(source, name) for name in ("o0", "o1")]
                    conditions.append(f"({' or '.join(either)})")
        if pattern.typed and self.typed is not None:
            conditions.append(f"{variable}.dtype is {self.typed}.dtype")
        elif pattern.dtype is not None:
            conditions.append(self._dtype_test(pattern.dtype, f"{variable}.dtype"))
        if pattern.typed and self.typed is None:
            self.typed = variable
        if pattern.arg is not ANYTHING and not pattern.constant:
            conditions.append(self._value_test(pattern.arg, f"{variable}.arg"))
        if isinstance(pattern.src, UPat):
            conditions.append(self._every_source(pattern.src, variable))
        return conditions

    def _op_test(self, pattern: UPat, variable: str) -> str:
        ops = pattern.ops
        if pattern.constant or ops is None:
            return f"{variable} in CONSTANT_OPS"
        if len(ops) == 1:
            return f"{variable} is {self.refer(ops[0], ops[0].name)}"
        return f"{variable} in {self.refer(frozenset(ops), 'ops')}"

    def _dtype_test(self, wanted: object, variable: str) -> str:
        if isinstance(wanted, DType):
            if wanted.lanes > 1:
                return f"{variable} is {self.refer(wanted, wanted.name)}"
            return f"{variable}.name == {wanted.name!r}"
        if isinstance(wanted, tuple):
            names = frozenset(dtype.name for dtype in wanted)
            return f"{variable}.name in {self.refer(names, 'dtypes')}"
        return f"{self.refer(wanted, 'fits')}({variable})"

    def _value_test(self, wanted: object, variable: str) -> str:
        if callable(wanted):
            return f"{self.refer(wanted, 'fits')}({variable})"
        if isinstance(wanted, bool):
            # 1.0 == True, but a comparison with 1.0 is no negation.
            return f"{variable} is {wanted}"
        if isinstance(wanted, float) and wanted == 0:
            sign = math.copysign(1.0, wanted)
            return f"{variable} == 0 and copysign(1.0, {variable}) == {sign}"
        return f"{variable} == {self.refer(wanted, 'value')}"

    def _every_source(self, pattern: UPat, variable: str) -> str:
        if pattern.names() or pattern.src is not None:
            raise ArgumentError(
                f"UPat(src={pattern}): a pattern for every source cannot name one of them or look "
                "at their sources; name the node above and test its src in the rule's function."
            )
        if variable == "node" and self.arity:
            tests = [self._conditions(pattern, f"s{i}") for i in range(self.arity)]
            return " and ".join([test for each in tests for test in each]) or "True"
        inner = self.fresh("e")
        test = " and ".join(self._conditions(pattern, inner)) or "True"
        return f"all([{test} for {inner} in {variable}.src])"

    def _constant(self, pattern: UPat, variable: str, bound: dict[str, str]) -> None:
        value = self.fresh("k")
        self.line(
            f"{value} = {variable}.arg if {variable}.op is CONST else constant_value({variable})"
        )
        conditions = [f"{value} is not None"]
        if pattern.arg is not ANYTHING:
            conditions.append(self._value_test(pattern.arg, value))
        if pattern.name is not None:
            if pattern.name in bound:
                conditions.append(f"{value} == {bound[pattern.name]}")
            bound.setdefault(pattern.name, value)
        self.test(conditions)

    def _sources(self, pattern: UPat, variable: str) -> list[tuple[UPat, str]]:
        """Unpack the sources that have patterns of their own; in every order for a list."""
        patterns = pattern.sources
        count = len(patterns)
        if not isinstance(pattern.src, Sequence):
            return []
        at_root = variable == "node" and self.arity == count > 0
        fixed = pattern.ops is not None and all(
            op in OP_TABLE and OP_TABLE[op].arity == count for op in pattern.ops
        )
        if not fixed and not at_root:
            self.test([f"len({variable}.src) {'>=' if pattern.is_open else '=='} {count}"])
        if count == 0:
            return []
        if at_root and isinstance(pattern.src, tuple):
            return [(source, f"s{i}") for i, source in enumerate(patterns)]
        names = [self.fresh("a") for _ in patterns]
        unpacked = ", ".join(names) + (", *_" if pattern.is_open else "," if count == 1 else "")
        if isinstance(pattern.src, tuple):
            self.line(f"{unpacked} = {variable}.src")
            return list(zip(patterns, names, strict=True))
        if at_root and count == 2:
            orders = "((s0, s1), (s1, s0))"
        elif count == 2 and fixed:
            orders = f"({variable}.src, {variable}.src[::-1])"
        else:
            orders = f"permutations({variable}.src, {count})"
        self.line(f"for {unpacked} in {orders}:")
        self.indent += 1
        return list(zip(patterns, names, strict=True))

    # ---- right side ----

    def _finish_function(self, rule: Rule, bound: dict[str, str]) -> None:
        arguments = {name: bound[name] for name in rule.parameters if name in bound}
        if "ctx" in rule.parameters:
            arguments.setdefault("ctx", "ctx")
        given = ", ".join(f"{name}={variable}" for name, variable in arguments.items())
        self.line(f"found = {self.refer(rule.function, 'function')}({given})")
        self.test(["found is not None", "found is not node"])
        self.line("return found")

    def _finish_equation(self, rule: Equation, bound: dict[str, str]) -> None:
        self.line(f"return {self._built(rule.right, bound)}")

    def _built(self, node: UOp, bound: dict[str, str]) -> str:
        """Text that builds a node of an equation's right side."""
        if _is_constant(node):
            return f"constant_like(node, {self._dtype(node)}, {self._number(node, bound)})"
        if isinstance(node.arg, PlaceholderArg):
            return bound[node.arg.name]
        sources = "".join(f"{self._built(source, bound)}, " for source in node.src)
        return f"UOp({self.refer(node.op, node.op.name)}, {self._dtype(node)}, ({sources}))"

    def _number(self, node: UOp, bound: dict[str, str]) -> str:
        if isinstance(node.arg, PlaceholderArg):
            return bound[node.arg.name]
        if node.op is Op.CONST:
            return self.refer(node.arg, "value")
        inside = ", ".join(self._number(source, bound) for source in node.src)
        return f"fold({self.refer(node.op, node.op.name)}, {self._dtype(node)}, {inside})"

    def _dtype(self, node: UOp) -> str:
        if node.dtype is ANY_DTYPE:
            return f"{self.typed or 'node'}.dtype"
        if node.dtype is dtypes.bool:
            return "truth_like(node.dtype)"
        return self.refer(node.dtype, node.dtype.name)


def _is_constant(node: UOp) -> bool:
    if isinstance(node.arg, PlaceholderArg):
        return node.arg.constant
    return node.op is Op.CONST or (bool(node.src) and all(map(_is_constant, node.src)))
