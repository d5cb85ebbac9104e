"""The conformance suite: the behaviour that every device must show, as functions to call.

A plugin's own tests run it in one test function::

    @pytest.mark.parametrize("case", aioinfer.testing.conformance_cases(), ids=str)
    def test_case(case, core):
        case.run(core, "TOY")

where ``core`` is a Core that knows the plugin. A case leaves the core open and as it found it. It
raises AssertionError where the device does not conform, whatever else went wrong, or
``unittest.SkipTest``, which test frameworks know, with the device's reason for refusing a model.
"""

from __future__ import annotations

from . import (  # noqa: F401  (each room registers its cases)
    conformance_exports,
    conformance_extensions,
    conformance_locations,
    conformance_loops,
    conformance_networks,
    conformance_requests,
    conformance_shapes,
    conformance_states,
    conformance_tensors,
)
from .conformance_case import ConformanceCase, registered_cases
from .conformance_numbers import numeric_cases

__all__ = ["ConformanceCase", "conformance_cases"]


def conformance_cases() -> list[ConformanceCase]:
    """List every case; the order is fixed, and none depends on another."""
    return [*registered_cases(), *numeric_cases()]
