"""Each rung finds a device right that is, and one that is not wrong, with the numbers before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from exhaustive import all_but
from gpu.needs import NEEDS, UNFIT, modules_needed
from gpu.rungs import driver_calls, facts, networks
from gpu.rungs.table import RUNGS, climb
from opencl_device import missing_reason
from unit.gpu_ladder.stand_in import ALL, stand_in

NETWORKS = [name for name, (module, _) in RUNGS.items() if module == "networks"]
LACKING = missing_reason()
needs_opencl = pytest.mark.skipif(LACKING is not None, reason=f"nothing stands in: {LACKING}")


@needs_opencl
@pytest.mark.parametrize(
    "name", all_but(["queues", "capture", "perceptron-cublaslt", "attention-mask"], RUNGS)
)
def test_a_rung_is_climbed_where_all_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEEDS, "")
    stand_in(monkeypatch)
    assert climb(name) == 0


@needs_opencl
@pytest.mark.parametrize("name", all_but(["perceptron-kernels"], NETWORKS))
def test_numbers_are_shown_before_a_rung_fails_of_them(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    monkeypatch.setattr(networks, "relative_error", lambda found, wanted: 0.5)
    assert climb(name) == 1
    said = capsys.readouterr()
    assert "errors [0.5, 0.5, 0.5]" in said.out
    assert "AssertionError" in said.err


@needs_opencl
@pytest.mark.parametrize(
    ("name", "library"),
    [("perceptron-cublas", "cublas"), ("perceptron-cublaslt", "cublaslt"), ("attention", "cudnn")],
)
def test_a_rung_fails_whose_library_was_not_asked(
    name: str,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stand_in(monkeypatch, ALL - {library})
    assert climb(name) == 1
    assert f"no plan of {library}" in capsys.readouterr().err


@needs_opencl
@pytest.mark.parametrize("name", ["queues", "capture"])
def test_a_rung_fails_if_a_kernel_does_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    source = driver_calls.KernelSource.of(
        "nothing", "__kernel void $name(__global uchar *x, const int count) {}"
    )
    monkeypatch.setattr(driver_calls, "ADD_ONE", source)
    assert climb(name) == 1
    assert "bytes are wrong" in capsys.readouterr().out


def loader(**refused: Exception) -> Callable[[str], Any]:
    def load(name: str) -> Any:
        if name.partition(".")[0] in refused:
            raise refused[name.partition(".")[0]]

    return load


def test_what_cannot_be_loaded_is_missing_whatever_it_raises() -> None:
    load = loader(cudnn=ImportError("no cudnn"), nvmath=RuntimeWarning("old"))
    missing = facts.missing_of(["cupy", "cudnn", "nvmath"], load)
    assert missing == {"cudnn": "ImportError: no cudnn", "nvmath": "RuntimeWarning: old"}


def test_a_machine_without_a_library_is_unfit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(facts, "missing_of", lambda needs, load: {"cudnn": "it is not here"})
    monkeypatch.setattr(facts, "tell_device", lambda: None)
    assert climb("facts") == UNFIT
    assert "MISSING: cudnn: it is not here; make gpu-wheels" in capsys.readouterr().out


def test_a_machine_without_a_gpu_is_unfit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(NEEDS, "")
    monkeypatch.setattr(facts, "tell_device", lambda: None)
    monkeypatch.setattr("gpu.device.DEVICE", "CUDA.99")
    assert climb("facts") == UNFIT
    assert "MISSING: CUDA.99" in capsys.readouterr().out


@needs_opencl
def test_a_library_that_was_found_and_does_not_work_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, frozenset({"cublas"}))
    monkeypatch.delenv(NEEDS, raising=False)
    monkeypatch.setattr(facts, "missing_of", lambda needs, load: {})
    assert climb("facts") == 1
    assert "of no use, as the log says: cublaslt, cudnn" in capsys.readouterr().err


def test_what_is_needed_can_be_lowered() -> None:
    assert modules_needed({}) == ["cupy", "cudnn", "nvmath"]
    assert modules_needed({NEEDS: "cupy, cudnn"}) == ["cupy", "cudnn"]
    assert modules_needed({NEEDS: ""}) == []
    with pytest.raises(ValueError, match="it takes cupy, cudnn, nvmath"):
        modules_needed({NEEDS: "cuddn"})
