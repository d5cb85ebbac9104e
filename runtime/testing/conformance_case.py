"""One behaviour that every device must show, and the words in which a case says what it expects.

A case uses no test framework: it raises AssertionError with a message that makes sense without
looking at the case, or ``unittest.SkipTest`` if the device says that it cannot run the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import SkipTest

import numpy as np

from .conformance_models import SampleModel

if TYPE_CHECKING:
    from ..devices.core import Core
    from ..network.executable_network import ExecutableNetwork

__all__ = [
    "WAIT_S",
    "ConformanceCase",
    "behaviour",
    "expect",
    "expect_equal",
    "expect_error",
    "load",
    "registered_cases",
]

WAIT_S = 60.0  # a bound for what must happen; no case sleeps
RELATIVE_TOLERANCE = {np.dtype(np.float16): 1e-2}  # else 1e-3, as onnx's own suite has it
ABSOLUTE_TOLERANCE = {np.dtype(np.float16): 1e-3}  # else 1e-5

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True)
class ConformanceCase:
    """A behaviour by name: ``case.run(core, "TOY")`` returns, or raises because TOY lacks it."""

    name: str
    run: Callable[[Core, str], None]

    def __str__(self) -> str:
        return self.name


_cases: list[ConformanceCase] = []


def behaviour(run: Callable[[Core, str], None]) -> Callable[[Core, str], None]:
    """Make a function of core and device a case of the suite, named after it."""
    _cases.append(ConformanceCase(run.__name__.lstrip("_"), run))
    return run


def registered_cases() -> list[ConformanceCase]:
    """List the cases of all rooms that were imported, in order."""
    return list(_cases)


def expect(holds: bool, what: str) -> None:
    """Raise AssertionError that says what was expected, unless it holds."""
    if not holds:
        raise AssertionError(f"expected that {what}")


def expect_error(kind: type[E], call: Callable[[], object], what: str) -> E:
    """Call it and return the error of this kind that it must raise; ``what`` says by doing what."""
    try:
        returned = call()
    except kind as error:
        return error
    except BaseException as other:
        raise AssertionError(f"{what} must raise {kind.__name__}, and raised {other!r}") from other
    raise AssertionError(f"{what} must raise {kind.__name__}, and returned {returned!r}")


def expect_equal(actual: Any, expected: Any, what: str) -> None:
    """Compare dtype, shape and content, floating point with a tolerance; ``what`` names it."""
    if not isinstance(expected, np.ndarray):
        expect(actual == expected, f"{what} is {expected!r}, not {actual!r}")
        return
    expect(isinstance(actual, np.ndarray), f"{what} is a numpy array, not {type(actual).__name__}")
    expect(actual.dtype == expected.dtype, f"{what} is {expected.dtype}, not {actual.dtype}")
    expect(actual.shape == expected.shape, f"{what} has {expected.shape}, not {actual.shape}")
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(
            actual,
            expected,
            rtol=RELATIVE_TOLERANCE.get(expected.dtype, 1e-3),
            atol=ABSOLUTE_TOLERANCE.get(expected.dtype, 1e-5),
            err_msg=what,
        )
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=what)


def load(
    core: Core, device: str, sample: SampleModel, config: Mapping[str, Any] | None = None
) -> ExecutableNetwork:
    """Load a sample on a device; SkipTest if ``query_network`` says that it cannot run it.

    A device that answers yes and cannot load it does not conform.
    """
    for node, answer in core.query_network(sample.proto(), device).items():
        if not answer.supported:
            raise SkipTest(f"{device} cannot run node {node!r} of {sample.name}: {answer.reason}")
    return core.load_network(sample.proto(), device, config)
