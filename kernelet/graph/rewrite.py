"""Apply rules to a graph until nothing changes.

In:  a graph and a rule set.
Out: the graph in which no rule of the set fits any more.

Each node is visited once and nothing recurses, however deep the graph is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from kernelet.base.errors import ArgumentError, InternalError
from kernelet.graph.matcher import Matcher, compile_matcher, matcher_source
from kernelet.graph.ops import Op
from kernelet.graph.pattern import Equation, Rule, UPat
from kernelet.graph.show import show
from kernelet.graph.uop import UOp

# So many nodes waiting for their replacements means that the rules build without end.
_MOST_PENDING = 100_000


class _Matchers(dict[Op, Matcher | None]):
    """One matcher for each op, compiled when the first node of that op is met."""

    def __init__(self, rules: Sequence[Rule | Equation]) -> None:
        super().__init__()
        self.rules = rules

    def __missing__(self, op: Op) -> Matcher | None:
        matcher = self[op] = compile_matcher(op, self.rules)
        return matcher


@final
class RuleSet:
    """A named, ordered group of rules; `+` joins two, the left one is tried first.

    >>> from kernelet.graph.pattern import UPat, rule
    >>> twice = rule(UPat.var("x") * 2)(lambda x: x + x)
    >>> RuleSet("no doubling", twice)
    RuleSet('no doubling', 1 rule)
    """

    def __init__(self, name: str, *rules: Rule | Equation) -> None:
        self.name = name
        self.rules = rules
        self.matchers = _Matchers(rules)
        self._sums: dict[RuleSet, RuleSet] = {}

    def __add__(self, other: RuleSet) -> RuleSet:
        # The same sum is the same object, so its rules are compiled once.
        if other not in self._sums:
            name = f"{self.name} + {other.name}"
            self._sums[other] = RuleSet(name, *self.rules, *other.rules)
        return self._sums[other]

    def __repr__(self) -> str:
        count = len(self.rules)
        return f"RuleSet({self.name!r}, {count} rule{'' if count == 1 else 's'})"

    def rewrite(self, node: UOp, ctx: object = None) -> UOp | None:
        """What the first rule that fits `node` makes of it; None when none fits."""
        matcher = self.matchers[node.op]
        return None if matcher is None else matcher(node, ctx)

    def source(self, op: Op) -> str:
        """The Python text that matches roots of kind `op`."""
        return matcher_source(op, self.rules)


def PatternMatcher(  # the name users of tinygrad know
    patterns: Sequence[tuple[UPat, Callable[..., UOp | None]]],
) -> RuleSet:
    """A rule set from pairs of pattern and function."""
    rules = [Rule.of(pattern, function) for pattern, function in patterns]
    return RuleSet("pattern matcher", *rules)


def graph_rewrite(root: UOp, rules: RuleSet, ctx: object = None, *, name: str | None = None) -> UOp:
    """The graph after `rules` were applied to every node until none fits.

    Sources are rewritten before the nodes that use them. `name` is the pass that an error speaks
    of.
    """
    name = name or rules.name
    matchers = rules.matchers
    done: dict[UOp, UOp] = {}  # node -> what it becomes in the end
    became: dict[UOp, UOp] = {}  # node -> what its rule made, itself still to be rewritten
    entered: set[UOp] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node in entered:
            replacement = became.pop(node, None)
            if replacement is not None:
                done[node] = done[replacement]
                stack.pop()
                continue
        else:
            entered.add(node)
            missing = [source for source in node.src if source not in done]
            if missing:
                stack.extend(missing)
                if not entered.isdisjoint(missing):
                    raise _endless(name, node, became)
                continue
        src = tuple([done[source] for source in node.src])
        built = node if src == node.src else UOp(node.op, node.dtype, src, node.arg)
        if built in done:
            done[node] = done[built]
            stack.pop()
            continue
        matcher = matchers[node.op]
        found = None if matcher is None else matcher(built, ctx)
        if found is None:
            done[node] = done[built] = built
            stack.pop()
        elif found in done:
            done[node] = done[built] = done[found]
            stack.pop()
        else:
            _check_progress(name, built, found, entered, became)
            became[node] = found
            stack.append(found)
    return done[root]


def _check_progress(
    name: str, node: UOp, found: UOp, entered: set[UOp], became: dict[UOp, UOp]
) -> None:
    if found.__class__ is not UOp:
        raise ArgumentError(
            f"{name}: a rule made {found!r} of {node.op.name}; a rule returns a UOp or None."
        )
    if found in entered or len(became) > _MOST_PENDING:
        raise _endless(name, node, became)


def _endless(name: str, node: UOp, became: dict[UOp, UOp]) -> InternalError:
    recent = [f"{show(old, 8)}\n  ->\n{show(new, 8)}" for old, new in list(became.items())[-3:]]
    return InternalError(
        f"{name}: the rules never come to an end; they are rewriting\n{show(node, 20)}\n"
        f"which is part of its own replacement, or one of {len(became)} nodes that wait for theirs. "
        "The last steps:\n" + "\n".join(recent)
    )
