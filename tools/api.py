"""Write the reference of the public interface: `python -m tools.api [--check]`.

In:  the signatures and docstrings of what users import.
Out: docs/api.md; with --check exit status 1 when that is not what the docstrings say.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator

import kernelet
from tools.sources import ROOT

PAGE = ROOT / "docs" / "api.md"
MODULES = (
    "kernelet.nn",
    "kernelet.nn.optim",
    "kernelet.nn.schedulers",
    "kernelet.nn.state",
    "kernelet.nn.datasets",
    "kernelet.array_api",
)
HEAD = """# The public interface

Written by `python3 -m tools.api` from the docstrings, which are run as tests. What arithmetic means,
NaN and overflow included, is in `numbers.md`; what each method was compared with in `methods.md`.
"""


def page() -> str:
    """The whole document."""
    parts = [HEAD, "## kernelet\n"]
    for name in sorted(kernelet.__all__):
        value = getattr(kernelet, name)
        if name != "Tensor" and not isinstance(value, types.ModuleType):
            parts += entry(name, value, 3)
    parts += list(tensor_methods())
    for path in MODULES:
        module = importlib.import_module(path)
        parts.append(f"## {path}\n\n{summary(module)}\n")
        for name, value in public(module):
            parts += entry(name, value, 3)
    return "\n".join(parts).rstrip() + "\n"


def tensor_methods() -> Iterator[str]:
    """A section for each topic of Tensor's methods, in the order in which classes build on it."""
    yield f"## Tensor\n\n{summary(kernelet.Tensor)}\n"
    for topic in reversed(kernelet.Tensor.__mro__):
        if not topic.__module__.startswith("kernelet."):
            continue
        members = [(name, vars(topic)[name]) for name in sorted(vars(topic))]
        known = [(name, value) for name, value in members if not name.startswith("_")]
        written = [part for name, value in known for part in entry(name, value, 4)]
        if written:
            yield f"### {summary(topic)}\n" if topic is not kernelet.Tensor else "### The handle\n"
            yield from written


def public(module: types.ModuleType) -> list[tuple[str, object]]:
    """What a module defines or exports for its users."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        ]
    found = [(name, getattr(module, name)) for name in sorted(names)]
    return [(name, value) for name, value in found if not isinstance(value, types.ModuleType)]


def entry(name: str, value: object, level: int) -> list[str]:
    """A heading with the signature, the docstring, and the public methods of a class."""
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if isinstance(plain, property):
        plain = plain.fget
    text = inspect.getdoc(plain)
    described = isinstance(plain, type) or callable(plain)
    if not described or not text or (isinstance(plain, type) and not is_ours(plain)):
        return []
    written = getattr(plain, "__name__", name)
    title = f"{'#' * level} `{name}{signature(value, plain)}`\n"
    if level > 3 and written != name.split(".")[-1] and not isinstance(plain, type):
        return [f"{title}\nAnother name of `{written}`.\n"]
    found = [f"{title}\n{text}\n"]
    if isinstance(plain, type):
        for method, inner in sorted(vars(plain).items()):
            if not method.startswith("_"):
                found += entry(f"{name}.{method}", inner, level + 1)
    return found


def is_ours(value: type) -> bool:
    """Whether a class is written here."""
    return value.__module__.startswith("kernelet")


def signature(value: object, plain: object) -> str:
    """The parameters as they are written, without self; nothing for a property."""
    if isinstance(value, property) or not callable(plain):
        return ""
    try:
        found = inspect.signature(plain)
    except (TypeError, ValueError):
        return "(...)"
    kept = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    text = str(found.replace(parameters=kept)).replace("'", "")
    return re.sub(r"<[\w.]*\.(\w+) object at 0x\w+>", r"\1", text)


def summary(value: object) -> str:
    """The first sentence of a docstring."""
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
        print(f"{PAGE.name}: {text.count(chr(10))} lines")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/api.md is not what the docstrings say: run python3 -m tools.api")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
