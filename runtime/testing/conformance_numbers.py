"""Every device agrees with REFERENCE on the samples, for all their shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import SkipTest

from .conformance_case import ConformanceCase, expect, expect_equal, load
from .conformance_models import SAMPLES, SampleModel
from .conformance_special import SPECIAL_SAMPLES

if TYPE_CHECKING:
    from ..devices.core import Core

__all__ = ["numeric_cases"]


def numeric_cases() -> list[ConformanceCase]:
    """Make a case of each sample."""
    return [_case_of(sample) for sample in (*SAMPLES, *SPECIAL_SAMPLES)]


def _case_of(sample: SampleModel) -> ConformanceCase:
    def run(core: Core, device: str) -> None:
        if "REFERENCE" not in core.plugin_names:
            raise SkipTest("REFERENCE, which knows the right answers, is not installed")
        with (
            load(core, device, sample) as network,
            core.load_network(sample.proto(), "REFERENCE") as oracle,
        ):
            for feed in sample.feeds():
                expected = oracle.create_infer_request().infer_sync(feed)
                outputs = network.create_infer_request().infer_sync(feed)
                expect(list(outputs) == list(expected), f"the outputs are {list(expected)}")
                for name, array in expected.items():
                    what = f"output {name!r} for { ({key: x.shape for key, x in feed.items()}) }"
                    expect_equal(outputs[name], array, what)

    return ConformanceCase(f"{sample.name}_agrees_with_reference", run)
