import pytest

from aioinfer.cli.console import make_console, print_indented, print_table


def test_brackets_and_colons_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(make_console(), "[bold] title", ["type"], [["float32[batch,3] :smile:"]])
    out = capsys.readouterr().out
    assert "[bold] title" in out
    assert "float32[batch,3] :smile:" in out


def test_a_narrow_screen_folds_only_the_columns_that_may(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    row = ["n" * 50, "REFERENCE.0", "123456.789"]
    print_table(make_console(), "t", ["node", "device", ">mean ms"], [row], fold=["node"])
    out = capsys.readouterr().out
    assert "REFERENCE.0" in out
    assert "123456.789" in out
    assert max(map(len, out.splitlines())) <= 40
    assert sum(line.count("n") for line in out.splitlines()[3:]) == 50


def test_a_pipe_keeps_a_row_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(make_console(), "t", ["node", "reason"], [["n" * 90, "r" * 90]], fold=["reason"])
    assert "n" * 90 + "   " + "r" * 90 in capsys.readouterr().out


def test_a_long_line_goes_on_further_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_indented(make_console(), "one two three four five six")
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == ["  one two three four", "    five six"]
