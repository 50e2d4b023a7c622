from kernelet.base.counters import GlobalCounters


def test_a_reset_forgets_launches_and_keeps_memory():
    GlobalCounters.add_memory(100)
    try:
        GlobalCounters.kernel_count += 3
        GlobalCounters.reset()
        assert GlobalCounters.kernel_count == 0
        assert GlobalCounters.mem_used == GlobalCounters.peak_mem >= 100
    finally:
        GlobalCounters.add_memory(-100)


def test_the_peak_is_the_most_that_was_held():
    GlobalCounters.reset()
    held = GlobalCounters.mem_used
    GlobalCounters.add_memory(50)
    GlobalCounters.add_memory(-50)
    assert (GlobalCounters.mem_used, GlobalCounters.peak_mem) == (held, held + 50)
