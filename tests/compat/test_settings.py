"""Settings are read and changed as tinygrad programs do."""

import pytest

from kernelet.base import config
from kernelet.base.errors import ArgumentError
from kernelet.compat.settings import Context, ContextVar, getenv
from tests.compat.runs import printed


def test_an_environment_variable_has_the_type_of_its_default(monkeypatch):
    monkeypatch.setenv("KERNELET_TEST_FLAG", "3")
    assert (getenv("KERNELET_TEST_FLAG"), getenv("KERNELET_TEST_FLAG", "")) == (3, "3")
    assert (getenv("KERNELET_TEST_FLAG", 1.5), getenv("KERNELET_TEST_FLAG", False)) == (3.0, True)
    assert getenv("KERNELET_NO_FLAG", 7) == 7


def test_a_variable_shows_the_setting_of_its_name():
    debug = ContextVar("DEBUG", 0)
    assert debug is ContextVar("DEBUG", 5)
    with Context(DEBUG=2):
        assert debug == 2
        assert debug >= 2
        assert not debug < 2
        assert config.current().debug == 2
    assert debug.value == config.current().debug


def test_a_program_has_variables_of_its_own():
    flag = ContextVar("A_FLAG_OF_MINE", 3)
    with Context(A_FLAG_OF_MINE=4, DEBUG=0):
        assert (flag.value, bool(flag)) == (4, True)
        flag.value = 0
        assert not flag
    assert flag <= 3
    assert flag > 2


def test_a_context_decorates_a_function_that_calls_itself():
    depth = ContextVar("DEPTH_OF_MINE", 0)

    @Context(DEPTH_OF_MINE=1)
    def down(steps):
        return depth.value + (down(steps - 1) if steps else 0)

    assert (down(3), depth.value) == (4, 0)


def test_an_unknown_setting_is_refused():
    with pytest.raises(ArgumentError, match="NO_SUCH_SETTING"):
        Context(NO_SUCH_SETTING=1)


def test_former_names_of_devices_and_settings_in_the_environment_count():
    code = "from tinygrad import Device\nfrom tinygrad.helpers import TRAINING\n"
    code += "print(Device.DEFAULT, TRAINING.value)"
    assert printed(code, CLANG="1", DEV="", TRAINING="1") == ["CPU 1"]


def test_what_a_program_sets_before_it_imports_tinygrad_counts():
    code = "import os; os.environ.update(DEBUG='0', BEAM='3', DEFAULT_FLOAT='HALF')\n"
    code += "from tinygrad.helpers import BEAM\nfrom tinygrad import dtypes\n"
    assert printed(f"{code}print(BEAM.value, dtypes.default_float.name)") == ["3 float16"]
