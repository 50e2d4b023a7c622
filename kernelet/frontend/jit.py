"""Capture a function's kernels once and run them again without building graphs.

In:  a function of tensors, bound variables, plain values, and lists, dicts, dataclasses of them.
Out: `TinyJit`: the first call with a signature runs the function, the second captures what it
     launches, later ones replay.

Every call is compared with what was captured; one that differs in shape, type, device, structure,
plain value or instance has a capture of its own.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, final

from kernelet import holdings
from kernelet.base import config
from kernelet.base.errors import JitError
from kernelet.frontend.capture import Capture, first_call
from kernelet.frontend.results import exchanged
from kernelet.frontend.signature import Inputs, read_inputs
from kernelet.frontend.tensor import Tensor

MOST_CAPTURES = 64


@final
class TinyJit:
    """A function that is captured when it is called for the second time, and replayed after.

    Results carry no history for gradients: call `backward` inside. Keep state by writing to it in
    place (`assign`), and give what changes as an argument: Python inside runs only while capturing.

    >>> from kernelet import Tensor
    >>> double = TinyJit(lambda x: x * 2)
    >>> [double(Tensor([n])).item() for n in range(4)]
    [0, 2, 4, 6]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise JitError(f"TinyJit: {function!r} cannot be called. Give a function of tensors.")
        self.function = function
        # None for a signature that was met once.
        self.captures: dict[tuple[object, ...], Capture | None] = {}
        self._objects: dict[int, object] = {}
        self._lock = threading.RLock()
        functools.update_wrapper(self, function, updated=())

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        return self if instance is None else functools.partial(self._call, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function has it
        return self._call(None, *args, **kwargs)

    def reset(self) -> None:
        """Forget all captures."""
        self.captures.clear()
        self._objects.clear()

    def _call(self, instance: object, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        first = () if instance is None else (instance,)
        if not config.current().jit or holdings.current_recorder.get():
            return self.function(*first, *args, **kwargs)
        # Replays share memory: one at a time.
        with self._lock:
            inputs = read_inputs(instance, args, kwargs)
            known = self.captures.get(inputs.key)
            call = functools.partial(self.function, *first)
            with holdings.lock:
                if isinstance(known, Capture) and known.updates(inputs):
                    return first_call(lambda: call(*args, **kwargs), inputs)
                if isinstance(known, Capture) and known.is_valid(inputs):
                    return known.replay(inputs)
            if known is not None or inputs.key not in self.captures:
                self._make_room(inputs)
                result = first_call(lambda: call(*args, **kwargs), inputs)
                self.captures[inputs.key] = None
                return result

            def call_with(others: dict[int, Tensor]) -> object:
                own: Any = [exchanged(value, others) for value in args]
                named: Any = {name: exchanged(value, others) for name, value in kwargs.items()}
                return call(*own, **named)

            found = Capture(call_with, inputs, self.function)
            result, found.result = found.result, None
            self.captures[inputs.key] = found if found.is_whole else None
            return result

    def _make_room(self, inputs: Inputs) -> None:
        """Get ready for a signature that is new, or whose capture serves no longer."""
        if len(self.captures) >= MOST_CAPTURES and inputs.key not in self.captures:
            raise JitError(
                f"TinyJit (jit): a call with signature number {MOST_CAPTURES + 1}; each shape, "
                "type or plain value is captured anew. Give numbers that change as tensors or "
                "bound variables, or call reset()."
            )
        for each in inputs.objects:
            self._watch(each)
        self.captures.pop(inputs.key, None)

    def _watch(self, value: object) -> None:
        """Drop the captures of an object when it dies: another one may have its id later."""
        number = id(value)
        if number in self._objects:
            return
        itself = weakref.ref(self)

        def forget(_: object) -> None:
            jit = itself()
            if jit is not None:
                jit.forget_object(number)

        try:
            self._objects[number] = weakref.ref(value, forget)
        except TypeError:  # such an object lives as long as its captures
            self._objects[number] = value

    def forget_object(self, number: int) -> None:
        """Drop what was captured for the object with this id."""
        self._objects.pop(number, None)
        for key in list(self.captures):
            if any(part is object and key[at + 1] == number for at, part in enumerate(key[:-1])):
                del self.captures[key]
