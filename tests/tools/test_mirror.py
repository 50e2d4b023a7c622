from tools import mirror


def test_gaps_are_found_on_both_sides(tmp_path, monkeypatch):
    package, tests = tmp_path / "kernelet", tmp_path / "tests"
    for folder in (package / "base", tests / "base", tests / "stories"):
        folder.mkdir(parents=True)
    (package / "base" / "__init__.py").write_text("")
    (package / "base" / "tested.py").write_text("x = 1\n")
    (package / "base" / "untested.py").write_text("x = 1\n")
    (tests / "base" / "test_tested.py").write_text("")
    (tests / "base" / "test_gone.py").write_text("")
    (tests / "stories" / "test_whole.py").write_text("")
    monkeypatch.setattr(mirror, "PACKAGE", package)
    monkeypatch.setattr(mirror, "TESTS", tests)
    assert mirror.complaints() == [
        "kernelet/base/untested.py has no tests/base/test_untested.py",
        "tests/base/test_gone.py tests no module of that name",
    ]
