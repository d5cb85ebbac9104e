"""Operations that a library has no plan for: other kernels compute them, and the log says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.queues.driver import (
    Context,
    DeviceFacts,
    DriverError,
    ErrorKind,
    Program,
)
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.errors import DeviceError
from opencl_device import missing_reason
from unit.backends.comparing import assert_close, run
from unit.backends.cuda.planning import cuda_core
from unit.backends.cuda.stand_in_driver import StandInDriver
from unit.benchmarks.small_networks import BATCH, SMALL, TOKENS, inputs_of


class Refusing(StandInDriver):
    """A stand-in whose libraries refuse what ``refuses`` says, by label."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: dict[str, ErrorKind] = {}

    def open(self, facts: DeviceFacts) -> Context:
        context = super().open(facts)
        plan = context.library_program

        def library_program(operation: LibraryOperation) -> Program:
            kind = self.refuses.get(operation.label)
            if kind is not None:
                raise DriverError(kind, "no engine for these strides")
            return plan(operation)

        context.library_program = library_program  # type: ignore[method-assign]
        return context


@pytest.fixture
def driver() -> Refusing:
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    return Refusing()


@pytest.fixture
def core(driver: Refusing) -> Iterator[Core]:
    with cuda_core(driver, "STANDIN") as core:
        yield core


@pytest.mark.parametrize(
    ("name", "label", "library"),
    [("resnet50", "conv", "cudnn"), ("minilm_l6", "matmul", "cublaslt")],
)
def test_the_answer_is_the_same_and_each_operation_is_refused_once(
    name: str,
    label: str,
    library: str,
    driver: Refusing,
    core: Core,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sizes = {} if name == "resnet50" else {"sequence": TOKENS}
    model, inputs = SMALL[name](batch=BATCH, **sizes), inputs_of(name)
    driver.refuses = {label: ErrorKind.OTHER}
    with caplog.at_level(logging.WARNING, "aioinfer"):
        found = run(core, model, "STANDIN", inputs)
    for key, expected in run(core, model, "REFERENCE", inputs).items():
        assert_close(key, found[key], expected, 1e-3)
    said = [record.getMessage() for record in caplog.records if library in record.getMessage()]
    assert said
    assert len(said) == len(set(said))
    assert "no engine for these strides; kernels without the library do it" in said[0]


@pytest.mark.parametrize("kind", [ErrorKind.OUT_OF_MEMORY, ErrorKind.LOST])
def test_a_device_in_need_is_not_asked_again(kind: ErrorKind, driver: Refusing, core: Core) -> None:
    driver.refuses = {"conv": kind}
    model: Any = SMALL["resnet50"](batch=BATCH)
    with pytest.raises(DeviceError, match=r"cannot plan 'conv' of cudnn .*no engine for these"):
        core.load_network(model, "STANDIN")
    driver.refuses = {}
    with core.load_network(model, "STANDIN") as network:
        outputs = network.create_infer_request().infer_sync(inputs_of("resnet50"))
        assert all(np.isfinite(array).all() for array in outputs.values())
