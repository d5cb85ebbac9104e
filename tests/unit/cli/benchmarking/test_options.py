from pathlib import Path

import pytest

from aioinfer.cli.arguments import OptionError
from aioinfer.cli.benchmarking.options import BenchmarkOptions, network_config, parse_options
from aioinfer.cli.device_config import device_config
from aioinfer.cli.parser import build_parser
from aioinfer.errors import PropertyError


def options(*arguments: str) -> BenchmarkOptions:
    parsed = build_parser().parse_args(["benchmark", "-m", "model.onnx", *arguments])
    return parse_options(parsed)


def test_without_a_limit_it_stops_after_ten_seconds() -> None:
    assert (options().iteration_count, options().duration_s) == (None, 10.0)
    assert options("-niter", "5").duration_s is None
    both = options("-niter", "5", "-t", "3")
    assert (both.iteration_count, both.duration_s) == (5, 3.0)


def test_the_hint_follows_the_api() -> None:
    assert options().hint == "throughput"
    assert options("-api", "sync").hint == "latency"
    assert options("-api", "sync", "-hint", "throughput").hint == "throughput"


def test_sync_uses_one_request() -> None:
    assert options("-api", "sync").request_count == 1
    assert options("-api", "sync", "-nireq", "1").request_count == 1
    with pytest.raises(OptionError, match="-nireq 4 does not fit"):
        options("-api", "sync", "-nireq", "4")
    assert options().request_count is None


def test_streams_need_that_there_is_no_hint() -> None:
    with pytest.raises(OptionError, match="-nstreams 2 needs -hint none"):
        options("-nstreams", "2")
    assert network_config(options("-nstreams", "2", "-hint", "none")) == {"NUM_STREAMS": "2"}


def test_streams_of_several_devices_become_their_properties() -> None:
    config = network_config(options("-nstreams", "CUDA.0:2,CPU:AUTO", "-hint", "none"))
    assert config == {
        "DEVICE_PROPERTIES": {"CUDA.0": {"NUM_STREAMS": "2"}, "CPU": {"NUM_STREAMS": "AUTO"}}
    }


@pytest.mark.parametrize("text", ["2,", ",", "CUDA:", ":2", "1,2"])
def test_bad_streams_are_refused(text: str) -> None:
    with pytest.raises(OptionError):
        options("-nstreams", text, "-hint", "none")


def test_the_network_is_told_hint_requests_and_counters() -> None:
    config = network_config(options("-nireq", "3", "-pc", "--affinity", "conv=1=CPU"))
    assert config == {
        "PERFORMANCE_HINT": "THROUGHPUT",
        "PERFORMANCE_HINT_NUM_REQUESTS": 3,
        "PERF_COUNT": True,
        "AFFINITY": {"conv=1": "CPU"},
    }
    assert network_config(options("-hint", "none", "-nireq", "3")) == {}


def test_a_property_wins_over_what_an_option_would_choose() -> None:
    config = network_config(options("--config", "PERFORMANCE_HINT=LATENCY"))
    assert config["PERFORMANCE_HINT"] == "LATENCY"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-hint", "latency", "--config", "PERFORMANCE_HINT=LATENCY"], "-hint and --config"),
        (["-pc", "--config", "PERF_COUNT=NO"], "-pc and --config PERF_COUNT=NO both set"),
        (
            ["-nstreams", "2", "-hint", "none", "--config", "NUM_STREAMS=3"],
            "'NUM_STREAMS' is given",
        ),
        (["--config", "NUM_STREAMS"], "--config 'NUM_STREAMS': KEY=VALUE or DEVICE:KEY=VALUE"),
        (["--affinity", "conv1"], "--affinity 'conv1': NODE=DEVICE is wanted"),
        (["-shape", "x"], "-shape 'x': cannot read"),
    ],
)
def test_contradictions_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options(*arguments)


def test_the_folder_of_the_report_must_be_there(tmp_path: Path) -> None:
    assert options("-report", str(tmp_path / "r.json")).report == tmp_path / "r.json"
    for path in (tmp_path / "no" / "r.json", tmp_path):
        with pytest.raises(OptionError, match="-report"):
            options("-report", str(path))


def test_the_trace_is_a_page_or_a_file_for_perfetto(tmp_path: Path) -> None:
    assert options().trace is None
    assert options("-trace", str(tmp_path / "t.html")).trace == tmp_path / "t.html"
    assert options("--trace", str(tmp_path / "t.json")).trace == tmp_path / "t.json"
    with pytest.raises(PropertyError, match="the suffix says the format"):
        options("-trace", str(tmp_path / "t.txt"))
    for path in (tmp_path / "no" / "t.html", tmp_path):
        with pytest.raises(OptionError, match="-trace"):
            options("-trace", str(path))


def test_properties_may_be_for_one_device_of_several() -> None:
    assert device_config(["A=1", "CUDA.1:B=2", "CUDA.1:C=3", "CPU:B=4"]) == {
        "A": "1",
        "DEVICE_PROPERTIES": {"CUDA.1": {"B": "2", "C": "3"}, "CPU": {"B": "4"}},
    }
    assert device_config([]) == {}
