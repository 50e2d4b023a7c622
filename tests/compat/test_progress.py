"""Bars are drawn on standard error; Timing tells a time on standard output."""

import re

import pytest

from kernelet.compat.progress import Timing, tqdm, trange


def test_a_bar_reads_the_iterable_to_its_end(capsys):
    assert list(tqdm("abc", desc="letters")) == ["a", "b", "c"]
    error = capsys.readouterr().err
    assert error.startswith("\rletters:   0%|")
    assert "3/3 [00:00<00:00" in error
    assert error.endswith("it/s]\n")


def test_an_iterable_of_unknown_length_has_no_bar(capsys):
    assert list(tqdm(iter(range(3)))) == [0, 1, 2]
    assert capsys.readouterr().err.endswith("it/s]\n")


def test_a_bar_is_updated_by_hand(capsys):
    with tqdm(total=2000, unit="B", unit_scale=True, rate=10**9) as bar:
        bar.update(1500)
        bar.set_description("half")
    error = capsys.readouterr().err
    assert "1.5k/2k" in error
    assert "half:  75%|" in error


def test_a_disabled_bar_is_silent(capsys):
    assert list(trange(3, disable=True)) == [0, 1, 2]
    tqdm.write("a line")
    assert capsys.readouterr().err == "\r\x1b[Ka line\n"


def test_timing_tells_how_long_a_block_took(capsys):
    with Timing("work: ", on_exit=lambda nanoseconds: f" of {nanoseconds > 0}"):
        pass
    assert re.fullmatch(r"work: +\d+\.\d\d ms of True\n", capsys.readouterr().out)
    with Timing("silent", enabled=False):
        pass
    assert capsys.readouterr().out == ""


def test_timing_decorates_and_lets_errors_pass(capsys):
    @Timing("function ")
    def fail():
        raise KeyError("mine")

    with pytest.raises(KeyError):
        fail()
    assert capsys.readouterr().out.startswith("function ")
