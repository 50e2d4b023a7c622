"""One framework and one workload in this process: prints one JSON line.

In:  their names, how long to time, and when this process was started.
Out: the median of the calls in ms, and a sample of the third call's result to compare.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import numpy as np

from benchmarks.frameworks import Array, Framework, make
from benchmarks.operations import Step, Workload
from benchmarks.table import Record
from benchmarks.workloads import WORKLOADS

SAMPLES = 200
UNTIMED = 5  # the third call is the first replay of a capture
MOST_CALLS = 2000
LEAST_CALLS = 3
SLOW_MS = 3000.0  # from here on one call is enough


def sample(values: Array) -> list[float]:
    """Elements of a result from all over it, and its scaled sum."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    picked = flat[:: max(1, flat.size // SAMPLES)][:SAMPLES]
    total = flat.sum() / np.sqrt(flat.size)
    return [float(f"{value:.7g}") for value in (*picked, total)]


def timed(framework: Framework, call: Step, number: int) -> tuple[float, Array]:
    """How many ms call `number` takes, and what it gives."""
    start = time.perf_counter()
    result = call(number)
    framework.wait(result)
    return (time.perf_counter() - start) * 1e3, result


def measure(framework: Framework, workload: Workload, seconds: float, started: float) -> Record:
    """Run a workload and say what it took; one that times the start is called once."""
    call = workload.build(framework)
    framework.count_kernels()
    first, result = timed(framework, call, 0)
    from_start = (time.time() - started) * 1e3
    record: Record = {"version": framework.version, "first_ms": first, "start_ms": from_start}
    if workload.start:
        numbers = framework.numbers(result)
        kernels = framework.count_kernels()
        return record | {
            "ms": from_start,
            "calls": 1,
            "kernels": kernels,
            "sample": sample(numbers),
        }
    timed(framework, call, 1)
    framework.count_kernels()
    last, result = timed(framework, call, 2)
    record["kernels"] = framework.count_kernels()
    record["sample"] = sample(framework.numbers(result))
    number = 3
    while number < UNTIMED and last < SLOW_MS:
        last, _ = timed(framework, call, number)
        number += 1
    times: list[float] = []
    begin, cpu = time.perf_counter(), time.process_time()
    least = LEAST_CALLS if last < SLOW_MS else 1
    while len(times) < least or (time.perf_counter() - begin < seconds and len(times) < MOST_CALLS):
        times.append(timed(framework, call, number)[0])
        number += 1
    used = (time.process_time() - cpu) * 1e3 / len(times)
    figures = {"ms": statistics.median(times), "least_ms": min(times), "cpu_ms": used}
    return record | figures | {"calls": len(times)}


def main() -> int:
    """Measure what the arguments name; the parent process reads the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework")
    parser.add_argument("workload")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--started", type=float, default=time.time())
    asked = parser.parse_args()
    framework = make(asked.framework, asked.threads)
    workload = WORKLOADS[asked.workload]
    record = measure(framework, workload, asked.seconds, asked.started)
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
