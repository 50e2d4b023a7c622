"""The native half of the thread pool, in C and in LLVM IR: the same four functions.

In:  how the processor waits a moment.
Out: source of
     pool_worker(pool)    what a worker thread does until the pool is stopped,
     pool_launch(pool, record)           one launch, shared by the workers and the caller,
     pool_replay(pool, records, count)   many launches, one after the other,
     pool_stop(pool)                     ends the workers.

A pool is an array of 64-bit words. WORK is the number of the job in its upper half and the chunks
that nobody has taken in its lower half; whoever takes one compares and swaps the whole word, so
the words of the job that it read before were those of this job. Between jobs nothing is left to
take, so the caller may write them. A worker that sleeps is not waited for: the caller takes its
chunks. A launch that finds the pool busy with another runs on its own thread, and for each such
launch one worker pauses, so that no more threads compute than the pool has.

A record is six words: function, address of its arguments, their count, begin, end, chunks. All
arguments are 64 bits wide, so a function may be called with more of them than it has: a few
call sites serve every count.
"""

from __future__ import annotations

RECORD_WORDS = 6
POOL_WORDS = 128
CALL_SIZES = (8, 32, 128)
LIMIT = CALL_SIZES[-1] - 2  # arguments of a function that a pool can call

# Where the words are; those that several threads write have a cache line of their own.
WORDS = {
    "WORK": 0,
    "DONE": 8,
    "BUSY": 16,
    "STOP": 24,
    "SLEEPERS": 32,
    "JOB": 40,
    "ALONE": 48,
    "PLACES": 56,
    "MUTEX": 64,
    "CONDITION": 96,
}
POOL_FUNCTIONS = ("pool_worker", "pool_launch", "pool_replay", "pool_stop")
# How often a worker looks again before it sleeps (about 0.5 ms), and how often either side lets
# others run meanwhile: the system may have put the worker on the caller's own core.
_SPINS, _YIELD_SPINS, _JOIN_SPINS = 20000, 64, 1000

_C_CALL = """\
    if (count + 2 <= {size}) {{
        word a[{size}] = {{0}};
        for (word i = 0; i < count; i++) a[i] = arguments[i];
        a[count] = begin, a[count + 1] = end;
        ((void (*)({types}))function)({values});
        return;
    }}
"""

_C = """\
typedef long long word;
enum {{ {words} }};
int pthread_mutex_lock(void*), pthread_mutex_unlock(void*);
int pthread_cond_wait(void*, void*), pthread_cond_broadcast(void*);
int sched_yield(void);
#define READ(place) __atomic_load_n(pool + (place), __ATOMIC_SEQ_CST)
#define WRITE(place, value) __atomic_store_n(pool + (place), value, __ATOMIC_SEQ_CST)
#define ADD(place, value) __atomic_fetch_add(pool + (place), value, __ATOMIC_SEQ_CST)
#define LEFT(work) ((work) & 0xffffffff)
#define READY (LEFT(READ(WORK)) && READ(ALONE) < allowed)

static void call(word function, const word* arguments, word count, word begin, word end) {{
{calls}}}

static void help(word* pool, word allowed) {{
    for (word work = READ(WORK); LEFT(work) && READ(ALONE) < allowed; work = READ(WORK)) {{
        word job[6];
        for (int i = 0; i < 6; i++) job[i] = __atomic_load_n(pool + JOB + i, __ATOMIC_RELAXED);
        if (!__atomic_compare_exchange_n(
                pool + WORK, &work, work - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
        word size = job[4] - job[3], chunk = job[5] - LEFT(work);
        word begin = job[3] + size * chunk / job[5], end = job[3] + size * (chunk + 1) / job[5];
        call(job[0], (const word*)job[1], job[2], begin, end);
        ADD(DONE, 1);
    }}
}}

void pool_worker(word* pool) {{
    word allowed = ADD(PLACES, -1);
    for (word spins = 0; !READ(STOP); spins++) {{
        if (READY) {{
            help(pool, allowed);
            spins = 0;
        }} else if (spins < {spins}) {{
            if (spins % {yield_spins} == {yield_spins} - 1) sched_yield();
            {pause}
        }} else {{
            pthread_mutex_lock(pool + MUTEX);
            ADD(SLEEPERS, 1);
            while (!READY && !READ(STOP))
                pthread_cond_wait(pool + CONDITION, pool + MUTEX);
            ADD(SLEEPERS, -1);
            pthread_mutex_unlock(pool + MUTEX);
            spins = 0;
        }}
    }}
}}

static void wake(word* pool) {{
    if (!READ(SLEEPERS)) return;
    pthread_mutex_lock(pool + MUTEX);
    pthread_cond_broadcast(pool + CONDITION);
    pthread_mutex_unlock(pool + MUTEX);
}}

void pool_launch(word* pool, const word* record) {{
    word chunks = record[5];
    if (chunks < 2 || __atomic_exchange_n(pool + BUSY, 1, __ATOMIC_SEQ_CST)) {{
        ADD(ALONE, 1);
        call(record[0], (const word*)record[1], record[2], record[3], record[4]);
        ADD(ALONE, -1);
        return;
    }}
    for (int i = 0; i < 6; i++) __atomic_store_n(pool + JOB + i, record[i], __ATOMIC_RELAXED);
    WRITE(DONE, 0);
    WRITE(WORK, ((READ(WORK) >> 32) + 1) << 32 | chunks);
    wake(pool);
    help(pool, 1ll << 62);
    for (word spins = 0; READ(DONE) != chunks; spins++) {{
        if (spins < {join_spins}) {{
            {pause}
        }} else {{
            sched_yield();
        }}
    }}
    WRITE(BUSY, 0);
}}

void pool_replay(word* pool, const word* records, word count) {{
    for (word i = 0; i < count; i++) pool_launch(pool, records + 6 * i);
}}

void pool_stop(word* pool) {{
    WRITE(STOP, 1);
    wake(pool);
}}
"""


def c_source(machine: str) -> str:
    """The pool in C, for gcc and clang; `machine` as in `platform.machine()`."""
    calls = ""
    for size in CALL_SIZES:
        values = ", ".join(f"a[{place}]" for place in range(size))
        calls += _C_CALL.format(size=size, types=", ".join(["word"] * size), values=values)
    words = ", ".join(f"{name} = {place}" for name, place in WORDS.items())
    pause = {"x86": "__builtin_ia32_pause();", "arm": '__asm__ volatile("yield");'}
    return _C.format(
        calls=calls,
        words=words,
        spins=_SPINS,
        join_spins=_JOIN_SPINS,
        yield_spins=_YIELD_SPINS,
        pause=pause.get(_family(machine), ";"),
    )


_IR_CALL = """\
  %fits{size} = icmp sle i64 %total, {size}
  br i1 %fits{size}, label %call{size}, label %try{size}
call{size}:
  %a{size} = alloca [{size} x i64], align 16
  call void @llvm.memcpy.p0.p0.i64(ptr %a{size}, ptr %arguments, i64 %bytes, i1 false)
  %begin{size} = getelementptr i64, ptr %a{size}, i64 %count
  store i64 %begin, ptr %begin{size}
  %end{size} = getelementptr i64, ptr %begin{size}, i64 1
  store i64 %end, ptr %end{size}
{loads}
  call void %function({values})
  ret void
try{size}:
"""

_IR = """\
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
{declare_pause}

define internal ptr @at(ptr %pool, i64 %place) alwaysinline {{
  %address = getelementptr i64, ptr %pool, i64 %place
  ret ptr %address
}}

define internal i64 @read(ptr %pool, i64 %place) alwaysinline {{
  %address = getelementptr i64, ptr %pool, i64 %place
  %value = load atomic i64, ptr %address seq_cst, align 8
  ret i64 %value
}}

define internal i1 @ready(ptr %pool, i64 %allowed) alwaysinline {{
  %work = load atomic i64, ptr %pool seq_cst, align 8
  %left = and i64 %work, 4294967295
  %any = icmp ne i64 %left, 0
  %alone = call i64 @read(ptr %pool, i64 {ALONE})
  %calm = icmp slt i64 %alone, %allowed
  %ready = and i1 %any, %calm
  ret i1 %ready
}}

define internal void @call(ptr %function, ptr %arguments, i64 %count, i64 %begin, i64 %end) noinline {{
  %total = add i64 %count, 2
  %bytes = mul i64 %count, 8
{calls}  ret void
}}

define internal void @help(ptr %pool, i64 %allowed) {{
entry:
  %job = call ptr @at(ptr %pool, i64 {JOB})
  br label %loop
loop:
  %work = load atomic i64, ptr %pool seq_cst, align 8
  %left = and i64 %work, 4294967295
  %none = icmp eq i64 %left, 0
  br i1 %none, label %over, label %count
count:
  %alone = call i64 @read(ptr %pool, i64 {ALONE})
  %crowded = icmp sge i64 %alone, %allowed
  br i1 %crowded, label %over, label %read
read:
{load_job}
  %less = sub i64 %work, 1
  %pair = cmpxchg ptr %pool, i64 %work, i64 %less seq_cst seq_cst
  %taken = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %taken, label %run, label %loop
run:
  %size = sub i64 %job4, %job3
  %chunk = sub i64 %job5, %left
  %following = add i64 %chunk, 1
  %low = mul i64 %size, %chunk
  %high = mul i64 %size, %following
  %first = sdiv i64 %low, %job5
  %last = sdiv i64 %high, %job5
  %begin = add i64 %job3, %first
  %end = add i64 %job3, %last
  %function = inttoptr i64 %job0 to ptr
  %arguments = inttoptr i64 %job1 to ptr
  call void @call(ptr %function, ptr %arguments, i64 %job2, i64 %begin, i64 %end)
  %done = call ptr @at(ptr %pool, i64 {DONE})
  atomicrmw add ptr %done, i64 1 seq_cst
  br label %loop
over:
  ret void
}}

define void @pool_worker(ptr %pool) {{
entry:
  %mutex = call ptr @at(ptr %pool, i64 {MUTEX})
  %condition = call ptr @at(ptr %pool, i64 {CONDITION})
  %sleepers = call ptr @at(ptr %pool, i64 {SLEEPERS})
  %places = call ptr @at(ptr %pool, i64 {PLACES})
  %allowed = atomicrmw sub ptr %places, i64 1 seq_cst
  br label %loop
loop:
  %spins = phi i64 [0, %entry], [0, %work], [%more, %spin], [%more, %yield], [0, %awake]
  %stop = call i64 @read(ptr %pool, i64 {STOP})
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %over, label %look
look:
  %ready = call i1 @ready(ptr %pool, i64 %allowed)
  br i1 %ready, label %work, label %idle
work:
  call void @help(ptr %pool, i64 %allowed)
  br label %loop
idle:
  %more = add i64 %spins, 1
  %patient = icmp slt i64 %spins, {spins}
  br i1 %patient, label %spin, label %sleep
spin:
  {pause}
  %turn = urem i64 %more, {yield_spins}
  %polite = icmp eq i64 %turn, 0
  br i1 %polite, label %yield, label %loop
yield:
  call i32 @sched_yield()
  br label %loop
sleep:
  call i32 @pthread_mutex_lock(ptr %mutex)
  atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %check
check:
  %ready_now = call i1 @ready(ptr %pool, i64 %allowed)
  %stop_now = call i64 @read(ptr %pool, i64 {STOP})
  %stopped_now = icmp ne i64 %stop_now, 0
  %wanted = or i1 %ready_now, %stopped_now
  br i1 %wanted, label %awake, label %wait
wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
awake:
  atomicrmw sub ptr %sleepers, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %loop
over:
  ret void
}}

define internal void @wake(ptr %pool) {{
  %sleepers = call i64 @read(ptr %pool, i64 {SLEEPERS})
  %none = icmp eq i64 %sleepers, 0
  br i1 %none, label %over, label %signal
signal:
  %mutex = call ptr @at(ptr %pool, i64 {MUTEX})
  %condition = call ptr @at(ptr %pool, i64 {CONDITION})
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_cond_broadcast(ptr %condition)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %over
over:
  ret void
}}

define void @pool_launch(ptr %pool, ptr %record) {{
entry:
  %busy = call ptr @at(ptr %pool, i64 {BUSY})
  %done = call ptr @at(ptr %pool, i64 {DONE})
  %job = call ptr @at(ptr %pool, i64 {JOB})
{load_record}
  %alone = icmp slt i64 %record5, 2
  br i1 %alone, label %inline, label %try
try:
  %was_busy = atomicrmw xchg ptr %busy, i64 1 seq_cst
  %taken = icmp ne i64 %was_busy, 0
  br i1 %taken, label %inline, label %share
inline:
  %function = inttoptr i64 %record0 to ptr
  %arguments = inttoptr i64 %record1 to ptr
  %beside = call ptr @at(ptr %pool, i64 {ALONE})
  atomicrmw add ptr %beside, i64 1 seq_cst
  call void @call(ptr %function, ptr %arguments, i64 %record2, i64 %record3, i64 %record4)
  atomicrmw sub ptr %beside, i64 1 seq_cst
  ret void
share:
{store_job}
  store atomic i64 0, ptr %done seq_cst, align 8
  %old = load atomic i64, ptr %pool seq_cst, align 8
  %number = lshr i64 %old, 32
  %following = add i64 %number, 1
  %upper = shl i64 %following, 32
  %work = or i64 %upper, %record5
  store atomic i64 %work, ptr %pool seq_cst, align 8
  call void @wake(ptr %pool)
  call void @help(ptr %pool, i64 4611686018427387904)
  br label %join
join:
  %spins = phi i64 [0, %share], [%more, %spin], [%more, %yield]
  %finished = call i64 @read(ptr %pool, i64 {DONE})
  %complete = icmp eq i64 %finished, %record5
  br i1 %complete, label %over, label %wait
wait:
  %more = add i64 %spins, 1
  %patient = icmp slt i64 %spins, {join_spins}
  br i1 %patient, label %spin, label %yield
spin:
  {pause}
  br label %join
yield:
  call i32 @sched_yield()
  br label %join
over:
  store atomic i64 0, ptr %busy seq_cst, align 8
  ret void
}}

define void @pool_replay(ptr %pool, ptr %records, i64 %count) {{
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %loop, label %over
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %record = getelementptr [6 x i64], ptr %records, i64 %i
  call void @pool_launch(ptr %pool, ptr %record)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %over
over:
  ret void
}}

define void @pool_stop(ptr %pool) {{
  %stop = call ptr @at(ptr %pool, i64 {STOP})
  store atomic i64 1, ptr %stop seq_cst, align 8
  call void @wake(ptr %pool)
  ret void
}}
"""


def llvm_source(machine: str) -> str:
    """The pool as LLVM IR; `machine` as in `platform.machine()`."""
    pause, declare_pause = {
        "x86": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
        "arm": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
    }.get(_family(machine), ("fence seq_cst", ""))
    return _IR.format(
        calls="".join(_ir_call(size) for size in CALL_SIZES),
        load_job=_ir_words("job", "load atomic i64, ptr {place} monotonic, align 8"),
        load_record=_ir_words("record", "load i64, ptr {place}, align 8"),
        store_job="\n".join(
            f"  %place{word} = getelementptr i64, ptr %job, i64 {word}\n"
            f"  store atomic i64 %record{word}, ptr %place{word} monotonic, align 8"
            for word in range(RECORD_WORDS)
        ),
        pause=pause,
        declare_pause=declare_pause,
        spins=_SPINS,
        join_spins=_JOIN_SPINS,
        yield_spins=_YIELD_SPINS,
        **{name: str(place) for name, place in WORDS.items()},
    )


def _ir_call(size: int) -> str:
    loads = "\n".join(
        f"  %p{size}_{place} = getelementptr i64, ptr %a{size}, i64 {place}\n"
        f"  %v{size}_{place} = load i64, ptr %p{size}_{place}"
        for place in range(size)
    )
    values = ", ".join(f"i64 %v{size}_{place}" for place in range(size))
    return _IR_CALL.format(size=size, loads=loads, values=values)


def _ir_words(base: str, load: str) -> str:
    return "\n".join(
        f"  %from_{base}{word} = getelementptr i64, ptr %{base}, i64 {word}\n"
        f"  %{base}{word} = {load.format(place=f'%from_{base}{word}')}"
        for word in range(RECORD_WORDS)
    )


def _family(machine: str) -> str:
    known = {"x86_64": "x86", "amd64": "x86", "arm64": "arm", "aarch64": "arm"}
    return known.get(machine.lower(), "")
