"""Small kernels by hand, in each language, and a way to launch them."""

import struct

from kernelet.runtime.buffer import Buffer
from kernelet.runtime.device import driver

C_ADD = """
void add(float* out, const float* left, const float* right, long long shift,
         long long thread_begin, long long thread_end) {
    for (long long i = thread_begin; i < thread_end; i++) out[i] = left[i] + right[i] + shift;
}
"""

IR_ADD = """
define void @add(ptr %out, ptr %left, ptr %right, i64 %shift, i64 %begin, i64 %end) {
entry:
  %any = icmp slt i64 %begin, %end
  %more = sitofp i64 %shift to float
  br i1 %any, label %loop, label %over
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %x = getelementptr float, ptr %left, i64 %i
  %y = getelementptr float, ptr %right, i64 %i
  %z = getelementptr float, ptr %out, i64 %i
  %a = load float, ptr %x
  %b = load float, ptr %y
  %sum = fadd float %a, %b
  %total = fadd float %sum, %more
  store float %total, ptr %z
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %end
  br i1 %again, label %loop, label %over
over:
  ret void
}
"""

SOURCES = {"CPU": C_ADD, "LLVM": IR_ADD}


def many_arguments_source(name, count):
    """A kernel that adds `count` variables and the bounds into the cells of its thread loop."""
    if name == "CPU":
        names = [f"v{i}" for i in range(count)]
        parameters = ", ".join(f"long long {each}" for each in names)
        return f"""
void total(long long* out, {parameters}, long long begin, long long end) {{
    for (long long i = begin; i < end; i++) out[i] = i + {" + ".join(names)};
}}"""
    parameters = ", ".join(f"i64 %v{i}" for i in range(count))
    sums = "\n".join(f"  %s{i + 1} = add i64 %s{i}, %v{i}" for i in range(count))
    return f"""
define void @total(ptr %out, {parameters}, i64 %begin, i64 %end) {{
entry:
  br label %check
check:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %any = icmp slt i64 %i, %end
  br i1 %any, label %loop, label %over
loop:
  %s0 = add i64 %i, 0
{sums}
  %z = getelementptr i64, ptr %out, i64 %i
  store i64 %s{count}, ptr %z
  %next = add i64 %i, 1
  br label %check
over:
  ret void
}}"""


def loaded(name, source, function, slots, variables):
    """The launcher of a kernel."""
    device = driver(name)
    return device.load(device.compile(source, function), function, slots, variables)


def filled(name, code, values):
    """A buffer that holds numbers."""
    data = struct.pack(f"<{len(values)}{code}", *values)
    buffer = Buffer(name, len(data))
    buffer.copy_in(data)
    return buffer


def contents(buffer, code):
    """The numbers that a buffer holds."""
    return list(
        struct.unpack(f"<{buffer.nbytes // struct.calcsize(code)}{code}", buffer.copy_out())
    )
