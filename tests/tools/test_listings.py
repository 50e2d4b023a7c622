import pytest

from tools.documents import section
from tools.listings import LISTINGS, listing, main, trimmed
from tools.sources import ROOT

DOCUMENT = ROOT / "docs" / "performance.md"

SOURCE = """typedef int prelude;

void f(int* out0) {
    float a0, a1, a2, a3, a4, a5, a6;
    float scratch1[4] __attribute__((aligned(64)));
    float scratch2[8] __attribute__((aligned(64)));
    for (i0) {
        a0 = x0;
        a1 = x1;
        a2 = x2;
        a3 = x3;
        last = a3;
        u0 = in[1];
        s0 = u0 * 1.5f;
        u1 = in[2];
        s1 = u1 * 0x1.8p-1f;
        u2 = in[3];
        s2 = u2 * 2.5f;
    }
}
"""
TRIMMED = """void f(int* out0) {
    float a0, …, a6;
    float scratch1[4] __attribute__((aligned(64)));
    float scratch2[8] __attribute__((aligned(64)));
    for (i0) {
        a0 = x0;
        …  // 3 more lines like the line above
        last = a3;
        u0 = in[1];
        s0 = u0 * 1.5f;
        …  // 4 more lines like the 2 lines above
    }
}"""


@pytest.mark.parametrize("name", LISTINGS)
def test_the_document_shows_what_the_compiler_generates(name):
    # `python -m tools.listings docs/performance.md` writes it anew: read the text around it again.
    assert section(DOCUMENT.read_text(), f"listing {name}") == listing(name)


def test_what_is_left_out_of_a_listing_is_counted():
    assert trimmed(SOURCE) == TRIMMED


def test_a_document_that_is_not_true_is_noticed_and_mended(tmp_path, capsys):
    path = tmp_path / "page.md"
    path.write_text(
        "".join(f"<!-- listing {n} -->\n<!-- end of listing {n} -->\n" for n in LISTINGS)
    )
    assert main([str(path), "--check"]) == 1
    assert main([str(path)]) == 0
    assert main([str(path), "--check"]) == 0
    assert f"run `python -m tools.listings {path}`" in capsys.readouterr().out
