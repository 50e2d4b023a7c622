"""The text of the thread pool."""

import importlib

import pytest

from kernelet.runtime import cpu
from kernelet.runtime.pool_source import POOL_FUNCTIONS, c_source, llvm_source

MACHINES = ["x86_64", "AMD64", "aarch64", "arm64", "riscv64"]


@pytest.mark.parametrize("machine", MACHINES)
def test_the_pool_is_valid_ir_on_every_machine(machine):
    binding = pytest.importorskip("llvmlite.binding")
    module = binding.parse_assembly(llvm_source(machine))
    module.verify()
    assert {each.name for each in module.functions} >= set(POOL_FUNCTIONS)


@pytest.mark.skipif(not cpu._found(""), reason="needs a C compiler")
def test_the_pool_is_valid_c_on_a_machine_without_a_pause():
    assert cpu.compile_c(c_source("riscv64"), "pool")


@pytest.mark.parametrize("machine", MACHINES)
def test_both_languages_define_the_same_functions(machine):
    for name in POOL_FUNCTIONS:
        assert f"void {name}(word* pool" in c_source(machine)
        assert f"define void @{name}(ptr %pool" in llvm_source(machine)


def test_the_words_of_a_pool_do_not_overlap():
    source = importlib.import_module("kernelet.runtime.pool_source")
    places = sorted(source.WORDS.values())
    assert places[0] == 0  # the IR reads the first word without an offset
    assert all(low + 8 <= high for low, high in zip(places, places[1:], strict=False))
    assert source.WORDS["CONDITION"] + 16 <= source.POOL_WORDS
