import threading

import pytest

from kernelet.base import config
from kernelet.base.config import Config, Context, code_key, from_environment
from kernelet.base.errors import ArgumentError


def test_there_are_at_most_twenty_settings_and_each_is_explained():
    lines = config.describe().splitlines()
    assert len(lines) <= 20
    assert all(len(line.split("  ", 1)[1]) > 10 for line in lines)


def test_the_environment_sets_fields():
    found = from_environment({"DEBUG": "3", "DEV": "python", "CC": "gcc", "THREADS": "2"})
    assert (found.debug, found.device, found.compiler, found.threads) == (3, "PYTHON", "gcc", 2)


def test_a_device_by_name_wins_over_dev():
    assert from_environment({"DEV": "CPU", "LLVM": "1"}).device == "LLVM"
    assert from_environment({"DEV": "CPU", "LLVM": "0"}).device == "CPU"


def test_the_cache_folder_follows_xdg_and_is_won_by_its_own_variable():
    assert from_environment({"XDG_CACHE_HOME": "/x"}).cache_folder == "/x/kernelet"
    assert from_environment({"XDG_CACHE_HOME": "/x", "KERNELET_CACHE": "/y"}).cache_folder == "/y"
    assert from_environment({}).cache_folder.endswith("kernelet")


def test_a_setting_that_is_not_a_number_is_named():
    with pytest.raises(ArgumentError, match=r"DEBUG='loud'.*whole number"):
        from_environment({"DEBUG": "loud"})


def test_a_context_holds_inside_its_block_whatever_the_case_of_names():
    before = config.current()
    with Context(DEBUG=2, training=1):
        assert (config.current().debug, config.current().training) == (2, 1)
        with Context(Debug=0):
            assert (config.current().debug, config.current().training) == (0, 1)
    assert config.current() == before


def test_a_context_ends_when_its_block_fails():
    before = config.current()
    with pytest.raises(KeyError), Context(BEAM=9):
        raise KeyError
    assert config.current() == before


def test_a_context_decorates_a_function_and_its_recursion():
    @Context(BEAM=7)
    def deep(count):
        assert config.current().beam == 7
        return deep(count - 1) if count else config.current().beam

    before = config.current().beam
    assert deep(3) == 7
    assert config.current().beam == before


def test_a_device_name_is_a_context_setting():
    with Context(PYTHON=1):
        assert config.current().device == "PYTHON"


def test_an_unknown_setting_lists_the_known_ones():
    with pytest.raises(ArgumentError, match=r"LOUD=1.*DEBUG, BEAM"):
        Context(LOUD=1)


def test_a_context_of_one_thread_is_unseen_by_another():
    seen = []
    with Context(BEAM=5):
        thread = threading.Thread(target=lambda: seen.append(config.current().beam))
        thread.start()
        thread.join()
    assert seen != [5]


def test_an_update_reaches_this_block_and_threads_that_start_later():
    seen = []
    before = config.current().beam
    try:
        with Context(DEBUG=0):
            config.update(BEAM=6)
            assert config.current().beam == 6
        thread = threading.Thread(target=lambda: seen.append(config.current().beam))
        thread.start()
        thread.join()
    finally:
        config.update(BEAM=before)
    assert seen == [6]


def test_only_settings_that_change_code_are_in_its_key():
    assert code_key(Config()) == code_key(Config(debug=4, training=1))
    assert code_key(Config()) != code_key(Config(threads=2))
