import json
from pathlib import Path
from types import MappingProxyType

from aioinfer.cli.benchmarking.percentiles import Window, summarize
from aioinfer.cli.benchmarking.report import BenchmarkReport, json_value
from aioinfer.cli.benchmarking.summed_node_times import NodeTime
from aioinfer.cli.error_line import error_line
from aioinfer.errors import ModelError
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.tracing.statistics import StageStatistics


def test_a_report_of_a_benchmark_that_reached_nothing_is_complete(tmp_path: Path) -> None:
    report = BenchmarkReport("aioinfer benchmark -m m.onnx", {"model": "m.onnx"}, error="no file")
    report.write(tmp_path / "r.json")
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["command_line"] == "aioinfer benchmark -m m.onnx"
    assert document["configuration"] == {"model": "m.onnx"}
    assert document["error"] == "no file"
    assert document["interrupted"] is False
    assert document["results"]["count"] == 0
    assert document["results"]["latency"] is None
    assert document["latencies_ms"] == document["stages"] == document["nodes"] == []


def test_a_report_holds_all_that_was_measured() -> None:
    report = BenchmarkReport("", {}, latencies_ms=[2.0, 1.0], latency=summarize([2.0, 1.0], 90))
    report.properties = {"INPUT_SHAPES": (MappingProxyType({"x": (1, 2)}),)}
    stage = StageStatistics("compute", "cpu", 2, 0.1, 0.05, 0.0)
    report.window = Window((stage,), {"cpu": 0.5})
    report.nodes = [NodeTime("a", "Add", ("a",), 1.5, 1.0)]
    document = json.loads(json.dumps(report.document()))
    assert document["latencies_ms"] == [2.0, 1.0]
    assert document["results"]["latency"]["percentile"] == 90
    assert document["execution"]["properties"] == {"INPUT_SHAPES": [{"x": [1, 2]}]}
    assert document["stages"][0]["executor"] == "cpu"
    assert document["stages"][0]["service"] == {"p50_s": 0, "p90_s": 0, "p99_s": 0, "max_s": 0}
    assert document["busy_shares"] == {"cpu": 0.5}
    assert document["nodes"][0]["original_nodes"] == ["a"]


def test_values_that_json_lacks_become_text() -> None:
    value = {1: TensorType(DType.FLOAT32, (2,)), "ok": [True, None, 1.5, "text"], "s": {3}}
    assert json_value(value) == {"1": "float32[2]", "ok": [True, None, 1.5, "text"], "s": [3]}


def test_an_error_is_one_line() -> None:
    assert error_line(ModelError("two\n  lines")) == "two lines"
    assert error_line(KeyboardInterrupt()) == "interrupted"
    assert error_line(ZeroDivisionError("x")) == "ZeroDivisionError: x (--debug shows where)"
    missing = FileNotFoundError(2, "No such file or directory", "a/b.svg")
    assert error_line(missing) == "'a/b.svg': No such file or directory"
