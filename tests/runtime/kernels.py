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


# Each call counts how many run at once, and the most that did.
C_CROWD = """
void crowd(long long* now, long long* most, long long steps, long long begin, long long end) {
    long long seen = __atomic_add_fetch(now, 1, __ATOMIC_SEQ_CST), old = *most;
    while (seen > old && !__atomic_compare_exchange_n(
        most, &old, seen, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    for (volatile long long i = 0; i < steps * (end - begin); i++) {}
    __atomic_add_fetch(now, -1, __ATOMIC_SEQ_CST);
}
"""
IR_CROWD = """
define void @crowd(ptr %now, ptr %most, i64 %steps, i64 %begin, i64 %end) {
entry:
  %before = atomicrmw add ptr %now, i64 1 seq_cst
  %seen = add i64 %before, 1
  %ignored = atomicrmw max ptr %most, i64 %seen seq_cst
  %size = sub i64 %end, %begin
  %turns = mul i64 %steps, %size
  %place = alloca i64
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  store volatile i64 %i, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %turns
  br i1 %more, label %loop, label %over
over:
  %after = atomicrmw sub ptr %now, i64 1 seq_cst
  ret void
}
"""
CROWDS = {"CPU": C_CROWD, "LLVM": IR_CROWD}

# Tells that it has begun, and goes on until the flag is set.
C_HOLD = """
void hold(long long* begun, volatile long long* flag, long long begin, long long end) {
    __atomic_store_n(begun, 1, __ATOMIC_SEQ_CST);
    while (!*flag) {}
}
"""
IR_HOLD = """
define void @hold(ptr %begun, ptr %flag, i64 %begin, i64 %end) {
entry:
  store atomic i64 1, ptr %begun seq_cst, align 8
  br label %loop
loop:
  %set = load volatile i64, ptr %flag
  %wait = icmp eq i64 %set, 0
  br i1 %wait, label %loop, label %over
over:
  ret void
}
"""
HOLDS = {"CPU": C_HOLD, "LLVM": IR_HOLD}
