"""Small C functions that a kernel calls: only those it uses are put in front of it.

In:  dtypes.
Out: the name of a function or type, whose text is then part of the prelude.

Lanes of vector bools are integers, 0 or -1, so that `&`, `|`, `^` and `~` work in gcc and clang
alike; the functions here take and give such masks. What is written lane by lane in braces is
one instruction after optimisation in both compilers.
"""

from __future__ import annotations

import textwrap

from kernelet.base.dtype import DType, dtypes
from kernelet.render.c_types import SIGNED, literal, scalar_name, short_name
from kernelet.render.renderer import bits_dtype

_ATTRIBUTES = "__attribute__((vector_size({size}), aligned({itemsize}), may_alias))"


class Prelude:
    """The types and functions in front of a kernel, each once, in order of need."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def text(self) -> str:
        """All that was asked for."""
        return "".join(self._texts.values())

    def add(self, name: str, text: str) -> str:
        """Put `text`, which defines `name`, after what is there already."""
        self._texts.setdefault(name, text)
        return name

    def function(self, result: str, name: str, parameters: str, body: str) -> str:
        """Define a function that is inlined always."""
        if name not in self._texts:
            self.add("INLINE", "#define INLINE static inline __attribute__((always_inline))\n")
            lines = "\n".join(
                textwrap.fill(line.strip(), 100, initial_indent="    ", subsequent_indent=" " * 8)
                for line in body.splitlines()
                if line.strip()
            )
            self.add(name, f"INLINE {result} {name}({parameters}) {{\n{lines}\n}}\n")
        return name

    def type(self, dtype: DType) -> str:
        """The C type of a value that is no vector bool."""
        if dtype.lanes == 1:
            return scalar_name(dtype)
        held = bits_dtype(dtype)
        attributes = _ATTRIBUTES.format(size=held.itemsize * held.lanes, itemsize=held.itemsize)
        name = short_name(held)
        return self.add(name, f"typedef {scalar_name(held)} {name} {attributes};\n")

    # ---- lanes ----

    def splat(self, dtype: DType) -> str:
        """scalar -> the vector that has it in every lane."""
        lanes = ", ".join(["x"] * dtype.lanes)
        body = f"return ({self.type(dtype)}){{{lanes}}};"
        name = f"splat_{short_name(dtype)}"
        return self.function(self.type(dtype), name, f"{scalar_name(dtype)} x", body)

    def float_function(self, name: str, dtype: DType) -> str:
        """sqrt(x), trunc(x) or fma(x, y, z) of floats."""
        builtin = f"__builtin_{name}{'f' if dtype.scalar is dtypes.float32 else ''}"
        if dtype.lanes == 1:
            return builtin
        if name == "trunc":
            return self._truncate(dtype)
        kind, letters = self.type(dtype), "xyz" if name == "fma" else "x"
        lanes = (
            f"{builtin}({','.join(f'{letter}[{lane}]' for letter in letters)})"
            for lane in range(dtype.lanes)
        )
        parameters = ", ".join(f"{kind} {letter}" for letter in letters)
        body = f"return ({kind}){{{', '.join(lanes)}}};"
        return self.function(kind, f"{name}_{short_name(dtype)}", parameters, body)

    def select(self, dtype: DType) -> str:
        """mask, x, y -> x where the mask is set, else y."""
        kind, mask = self.type(dtype), self.type(mask_dtype(dtype))
        body = f"return ({kind})((mask & ({mask})x) | (~mask & ({mask})y));"
        name = f"select_{short_name(dtype)}"
        return self.function(kind, name, f"{mask} mask, {kind} x, {kind} y", body)

    def maximum(self, dtype: DType) -> str:
        """The greater of x and y; NaN wins."""
        if dtype.lanes == 1:
            nan = " || x != x" if dtype.is_float else ""
            return self._binary("max", dtype, f"return x > y{nan} ? x : y;")
        mask = self.type(mask_dtype(dtype))
        test = f"({mask})(x > y)" + (f" | ({mask})(x != x)" if dtype.is_float else "")
        return self._binary("max", dtype, f"return {self.select(dtype)}({test}, x, y);")

    def _truncate(self, dtype: DType) -> str:
        # What has no fraction stays as it is, NaN too.
        whole = SIGNED[dtype.itemsize].vec(dtype.lanes)
        kind, bits = self.type(dtype), self.type(whole)
        limit = "0x1p23f" if dtype.itemsize == 4 else "0x1p52"
        body = f"""
            const {bits} sign = ({bits})x & {self.splat(whole)}({literal(whole, int(whole.min))});
            const {bits} magnitude = ({bits})x ^ sign;
            const {bits} small = ({bits})(({kind})magnitude < {self.splat(dtype)}({limit}));
            const {bits} integer = __builtin_convertvector(({kind})(magnitude & small), {bits});
            const {bits} result = ({bits})__builtin_convertvector(integer, {kind});
            return ({kind})((result & small) | (magnitude & ~small) | sign);"""
        return self.function(kind, f"trunc_{short_name(dtype)}", f"{kind} x", body)

    # ---- integer division that never traps ----

    def divide(self, dtype: DType) -> str:
        """x / y towards zero; 0 where y is 0, and the least number / -1 wraps."""
        if dtype.lanes > 1:
            return self._divide_lanes("div", "/", dtype, "(({mask})-x & ~zero)")
        minus_one = "" if dtype.is_unsigned else "y == -1 ? 0 - x : "
        return self._binary("div", dtype, f"return y == 0 ? 0 : {minus_one}x / y;")

    def modulo(self, dtype: DType) -> str:
        """x % y with the sign of x; x where y is 0, and 0 where y is -1."""
        if dtype.lanes > 1:
            return self._divide_lanes("mod", "%", dtype, "(({mask})x & zero)")
        minus_one = "" if dtype.is_unsigned else "y == -1 ? 0 : "
        return self._binary("mod", dtype, f"return y == 0 ? x : {minus_one}x % y;")

    def _divide_lanes(self, name: str, sign: str, dtype: DType, odd_result: str) -> str:
        kind, mask = self.type(dtype), self.type(mask_dtype(dtype))
        negative = "" if dtype.is_unsigned else f" | ({mask})(y == {self.splat(dtype)}(-1))"
        body = f"""
            const {mask} zero = ({mask})(y == ({kind}){{0}}), odd = zero{negative};
            const {kind} quotient = x {sign} {self.select(dtype)}(odd, {self.splat(dtype)}(1), y);
            return {self.select(dtype)}(odd, ({kind}){odd_result.format(mask=mask)}, quotient);"""
        return self._binary(name, dtype, body)

    def _binary(self, name: str, dtype: DType, body: str) -> str:
        kind = self.type(dtype)
        return self.function(kind, f"{name}_{short_name(dtype)}", f"{kind} x, {kind} y", body)

    # ---- memory under a mask ----

    def load(self, dtype: DType) -> str:
        """address, mask -> the lanes whose flag is set; the others are 0 and not read."""
        kind, mask, scalar = self.type(dtype), self.type(mask_dtype(dtype)), scalar_name(dtype)
        body = f"""
            {scalar_name(mask_dtype(dtype))} flags[{dtype.lanes}];
            {scalar} lanes[{dtype.lanes}];
            {kind} result;
            __builtin_memcpy(flags, &mask, sizeof mask);
            {self._keep_loop()}
            for (int lane = 0; lane < {dtype.lanes}; lane++)
            lanes[lane] = flags[lane] ? memory[lane] : 0;
            __builtin_memcpy(&result, lanes, sizeof result);
            return result;"""
        name = f"load_{short_name(dtype)}"
        return self.function(kind, name, f"const {scalar}* memory, {mask} mask", body)

    def store(self, dtype: DType) -> str:
        """address, mask, value: write the lanes whose flag is set, touch no other."""
        kind, mask, scalar = self.type(dtype), self.type(mask_dtype(dtype)), scalar_name(dtype)
        body = f"""
            {scalar_name(mask_dtype(dtype))} flags[{dtype.lanes}];
            {scalar} lanes[{dtype.lanes}];
            __builtin_memcpy(flags, &mask, sizeof mask);
            __builtin_memcpy(lanes, &value, sizeof value);
            {self._keep_loop()}
            for (int lane = 0; lane < {dtype.lanes}; lane++)
            if (flags[lane]) memory[lane] = lanes[lane];"""
        name = f"store_{short_name(dtype)}"
        return self.function("void", name, f"{scalar}* memory, {mask} mask, {kind} value", body)

    def whole(self, dtype: DType) -> str:
        """x in one register, whose lanes are read from there.

        Else clang would shuffle the lanes of sums in the very loop that adds them up.
        """
        extension = _EXTENSIONS.get(dtype.itemsize * dtype.lanes)
        kind, name = self.type(dtype), f"whole_{short_name(dtype)}"
        if extension is None:
            return self.function(kind, name, f"{kind} x", "return x;")
        keep = f"KEEP_{dtype.itemsize * dtype.lanes}"
        text = f"#if defined(__clang__) && defined({extension})\n"
        text += f'#define {keep}(x) __asm__("" : "+v"(x))\n#else\n#define {keep}(x)\n#endif\n'
        self.add(keep, text)
        return self.function(kind, name, f"{kind} x", f"{keep}(x);\nreturn x;")

    def _keep_loop(self) -> str:
        # clang turns the loop into one masked access only if it is still a loop by then.
        text = '#ifdef __clang__\n#define KEEP_LOOP _Pragma("clang loop unroll(disable)")\n'
        text += "#else\n#define KEEP_LOOP\n#endif\n"
        return self.add("KEEP_LOOP", text)


# What an x86 processor needs for registers of so many bytes.
_EXTENSIONS = {16: "__SSE2__", 32: "__AVX__", 64: "__AVX512F__"}


def mask_dtype(dtype: DType) -> DType:
    """The integers that stand for one bool per lane of `dtype`."""
    return SIGNED[dtype.itemsize].vec(dtype.lanes)
