"""Programs as plain data."""

import pickle

from kernelet.base.program import Estimates, Program


def test_a_program_travels_between_processes():
    program = Program("add", "text", b"code", 3, ("n",), 8, Estimates(10, 120))
    assert pickle.loads(pickle.dumps(program)) == program


def test_a_program_has_no_thread_loop_unless_it_says_so():
    program = Program("add", "text", b"code", 3)
    assert (program.thread_size, program.variables, program.estimates) == (0, (), Estimates())
