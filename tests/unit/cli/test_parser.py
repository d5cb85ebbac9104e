from pathlib import Path
from typing import Any

import pytest

from aioinfer.cli.arguments import OptionError, parse_pairs
from aioinfer.cli.parser import build_parser


def parse(*arguments: str) -> Any:
    return build_parser().parse_args(list(arguments))


def test_benchmark_takes_the_options_of_benchmark_app() -> None:
    parsed = parse(
        *["benchmark", "-m", "m.onnx", "-d", "CPU", "-hint", "none", "-api", "async"],
        *["-nireq", "4", "-niter", "10", "-t", "2.5", "-b", "8", "-shape", "x[1]"],
        *["-nstreams", "2", "-i", "a.npy", "b.npy", "-pc", "-report", "r.json"],
        *["-latency_percentile", "90", "--config", "A=1", "--config", "B=2", "-i", "c.npy"],
    )
    assert (parsed.m, parsed.d, parsed.hint, parsed.api) == ("m.onnx", "CPU", "none", "async")
    assert (parsed.nireq, parsed.niter, parsed.t, parsed.b) == (4, 10, 2.5, 8)
    assert (parsed.shape, parsed.nstreams, parsed.pc) == ("x[1]", "2", True)
    assert parsed.i == ["a.npy", "b.npy", "c.npy"]
    assert (parsed.report, parsed.latency_percentile) == (Path("r.json"), 90)
    assert parsed.config == ["A=1", "B=2"]


def test_every_option_has_a_long_name_with_two_dashes() -> None:
    parsed = parse("benchmark", "--model", "m.onnx", "--hint", "LATENCY", "--niter", "3", "--pc")
    assert (parsed.m, parsed.hint, parsed.niter, parsed.pc) == ("m.onnx", "latency", 3, True)


def test_the_short_words_of_openvino_are_understood() -> None:
    assert parse("benchmark", "-m", "m", "-hint", "tput").hint == "throughput"
    assert parse("benchmark", "-m", "m", "-hint", "ctput").hint == "cumulative_throughput"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["benchmark"], "required: -m/--model"),
        (["query"], "required: MODEL"),
        (["bench"], "invalid choice: 'bench'"),
        (["benchmark", "-m", "m", "-nirq", "3"], "'-nirq'; did you mean '-nireq'"),
        (["devices", "--jsn"], "'--jsn'; did you mean '--json'"),
        (["query", "m", "more"], "unknown argument 'more'"),
        (["benchmark", "-m", "m", "-niter", "0"], "-niter: '0' is not a whole number of 1"),
        (["benchmark", "-m", "m", "-b", "two"], "-b: 'two' is not a whole number of 1"),
        (["benchmark", "-m", "m", "-t", "0"], "-t: '0' is not a number of seconds above 0"),
        (["benchmark", "-m", "m", "-t", "inf"], "-t: 'inf' is not a number of seconds"),
        (["benchmark", "-m", "m", "-t", "nan"], "-t: 'nan' is not a number of seconds"),
        (["benchmark", "-m", "m", "-t", "soon"], "-t: 'soon' is not a number of seconds"),
        (["benchmark", "-m", "m", "-latency_percentile", "0"], "'0' is not a percentile"),
        (["benchmark", "-m", "m", "-latency_percentile", "101"], "'101' is not a percentile"),
        (["benchmark", "-m", "m", "-hint", "fast"], "'fast' is not one of latency, throughput"),
        (["benchmark", "-m", "m", "-api", "asinc"], "'asinc' .* did you mean 'async'"),
        (["benchmark", "-m", "m", "--seed", "-1"], "--seed: "),
    ],
)
def test_a_bad_argument_is_refused_with_the_way_to_the_help(
    arguments: list[str], message: str
) -> None:
    with pytest.raises(OptionError, match=f"{message}.*--help\\)"):
        parse(*arguments)


@pytest.mark.parametrize("command", [[], ["devices"], ["query"], ["benchmark"]])
def test_help_fits_a_screen_of_80_columns(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        parse(*command, "--help")
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= 80


def test_pairs_are_split_at_the_first_or_the_last_equals_sign() -> None:
    assert parse_pairs(["A=b=c", " D = e "], "--config", "K=V") == {"A": "b=c", "D": "e"}
    assert parse_pairs(["a=b=C"], "--affinity", "N=D", at_last=True) == {"a=b": "C"}


@pytest.mark.parametrize("item", ["A", "=b", "A=", "", " = "])
def test_a_pair_needs_both_sides(item: str) -> None:
    with pytest.raises(OptionError, match=r"--config .*: KEY=VALUE is wanted"):
        parse_pairs([item], "--config", "KEY=VALUE")


def test_a_key_may_come_once() -> None:
    with pytest.raises(OptionError, match="--config: 'A' is given twice"):
        parse_pairs(["A=1", "A=1"], "--config", "KEY=VALUE")
