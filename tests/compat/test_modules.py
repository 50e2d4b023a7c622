"""Names of tinygrad's modules are found here, and what is missing says so by name."""

import subprocess
import sys

import pytest

from kernelet.compat.modules import MODULES
from tests.compat.runs import PROGRAMS, output_of, printed

NAMES = {
    "tinygrad": "Tensor TinyJit Variable dtypes Device Context GlobalCounters fetch getenv nn "
    "function UOp",
    "tinygrad.tensor": "Tensor",
    "tinygrad.dtype": "DType DTYPES_DICT to_dtype least_upper_dtype least_upper_float dtypes "
    "can_lossless_cast truncate float_to_fp16 float_to_bf16 float_to_fp8 fp8_to_float",
    "tinygrad.helpers": "Context ContextVar Timing getenv fetch tqdm trange prod all_same dedup "
    "argfix colored ansistrip round_up ceildiv count merge_dicts fully_flatten flatten partition "
    "get_shape polyN diskcache diskcache_get diskcache_put DEBUG BEAM JIT WINO GlobalCounters",
    "tinygrad.device": "Device is_dtype_supported",
    "tinygrad.engine.jit": "TinyJit JitError",
    "tinygrad.nn": "Linear Conv2d BatchNorm BatchNorm2d LayerNorm Embedding optim state datasets",
    "tinygrad.nn.optim": "SGD Adam AdamW LAMB LARS Muon Optimizer OptimizerGroup",
    "tinygrad.nn.state": "get_parameters get_state_dict load_state_dict safe_load safe_save "
    "torch_load tar_extract zip_extract gguf_load safe_load_metadata",
    "tinygrad.nn.datasets": "mnist cifar",
    "tinygrad.uop.ops": "UOp Ops UPat PatternMatcher graph_rewrite GroupOp Variable sint resolve",
    "tinygrad.ops": "UOp Ops UPat PatternMatcher graph_rewrite Variable",
    "tinygrad.llm.gguf": "gguf_load",
}
IMPORTS = "".join(
    f"from {module} import {', '.join(names.split())}\n" for module, names in NAMES.items()
)
QUICK = {"archives", "environment_flags", "helper_functions", "rewriting"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=[] if path.stem in QUICK else pytest.mark.slow)
        for path in sorted(PROGRAMS.glob("*.py"))
    ],
)
def test_a_program_for_tinygrad_prints_what_it_should(name):
    expected = (PROGRAMS / f"{name}.out").read_text()
    assert output_of(str(PROGRAMS / f"{name}.py"), DEV="") == expected


def test_all_public_names_are_kernelets_own(tmp_path):
    real = tmp_path / "tinygrad"
    real.mkdir()
    (real / "__init__.py").write_text("raise RuntimeError('the installed tinygrad was imported')")
    code = f"{IMPORTS}import kernelet\nprint(Tensor is kernelet.Tensor, nn.Linear is kernelet.nn.Linear)"
    assert printed(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}") == ["True True"]


def test_install_takes_the_place_of_an_imported_tinygrad(tmp_path):
    (tmp_path / "tinygrad.py").write_text("Tensor = 'theirs'")
    code = (
        "import tinygrad; print(tinygrad.Tensor)\n"
        "import kernelet.compat; kernelet.compat.install(); kernelet.compat.install()\n"
        "import tinygrad; print(tinygrad.Tensor is __import__('kernelet').Tensor)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["theirs", "True"], done.stderr


def test_a_missing_name_says_so_and_what_to_do():
    cases = {
        "from tinygrad.helpers import prodd": "tinygrad.helpers has no 'prodd' in kernelet.compat; "
        "it has prod",
        "import tinygrad.nonsense": "tinygrad has no 'nonsense'",
        "import tinygrad.runtime.ops_amd": "Its counterpart is kernelet.runtime",
        "from tinygrad.renderer.cstyle import CStyleLanguage": "kernelet.render",
        "from tinygrad import Tensorr": "it has Tensor",
    }
    code = "import tinygrad, tinygrad.helpers\n"
    for line in cases:
        code += f"try:\n  {line}\nexcept ImportError as error:\n  print(error)\n"
    for message, expected in zip(printed(code), cases.values(), strict=True):
        assert expected in message
        assert message.lower().endswith("import out, or put it in try/except importerror.")


def test_a_missing_attribute_is_an_attribute_error_that_says_so():
    code = "import tinygrad\nprint(hasattr(tinygrad, 'x'), tinygrad.nn.optim.Adam.__name__)\n"
    code += "try:\n  tinygrad.helpers.nothing\nexcept AttributeError as error:\n  print(error)"
    first, message = printed(code)
    assert first == "False Adam"
    assert "tinygrad.helpers has no 'nothing'" in message


def test_every_module_of_the_table_can_be_imported():
    names = [f"tinygrad.{name}".rstrip(".") for name in MODULES]
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)\nprint('all')"
    assert printed(code) == ["all"]


def test_a_program_has_its_own_arguments_and_exit_status(tmp_path):
    (tmp_path / "beside.py").write_text("from tinygrad.helpers import prod")
    script = tmp_path / "script.py"
    script.write_text("import sys, beside\nprint(sys.argv[1:], beside.prod([2, 3]), __name__)\n")
    expected = "['-x', '1'] 6 __main__\n"
    assert output_of(str(script), "-x", "1") == expected
    assert output_of("-m", "script", "-x", "1", folder=tmp_path) == expected
    assert output_of("-c", "import sys; print(sys.argv)", "a") == "['-c', 'a']\n"
    with pytest.raises(AssertionError, match="stopped"):
        output_of("-c", "raise SystemExit('stopped')")
    assert "usage" in output_of("--help")


def test_spawned_processes_find_kernelet_too(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing\nfrom tinygrad import Tensor\nfrom tinygrad.helpers import prod\n"
        "def work(number):\n  return Tensor.__module__, prod([number, 2])\n"
        "if __name__ == '__main__':\n"
        "  with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "    print(pool.map(work, [1, 2]))\n"
    )
    assert output_of(str(script)) == (
        "[('kernelet.frontend.tensor', 2), ('kernelet.frontend.tensor', 4)]\n"
    )
