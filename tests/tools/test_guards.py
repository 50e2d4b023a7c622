from tools.documents import section
from tools.guards import complaints, tuned_numbers
from tools.sources import ROOT

HEAD = "| file | numbers | workloads | decision |\n| --- | --- | --- | --- |\n"


def test_every_tuned_number_names_its_benchmark():
    text = (ROOT / "docs" / "performance.md").read_text()
    assert complaints(section(text, "guards")) == []


def test_a_number_without_a_row_is_noticed():
    assert ("lower/tiles.py", "TILE_SUMS") in tuned_numbers()
    assert "lower/tiles.py: TILE_SUMS names no benchmark" in complaints(HEAD)


def test_a_row_without_a_number_or_a_workload_is_noticed():
    found = complaints(HEAD + "| `lower/panels.py` | `NOTHING` | `no_such` | x |\n")
    assert "lower/panels.py: NOTHING is not there any more" in found
    assert "lower/panels.py, `NOTHING`: `no_such` is no workload or group" in found
