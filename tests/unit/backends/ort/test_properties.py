from typing import Any

import pytest

from aioinfer.backends.ort.properties import PROPERTIES, SessionSettings, settings_of
from aioinfer.errors import PropertyError
from aioinfer.runtime.properties.properties import STANDARD_PROPERTIES, Configuration


def config_of(**values: Any) -> Configuration:
    config = Configuration("ONNXRUNTIME", (*STANDARD_PROPERTIES, *PROPERTIES))
    return config.with_values(values)


def test_one_pool_computes_for_a_run_in_sequence() -> None:
    settings = settings_of(config_of(), "CPUExecutionProvider", 4)
    assert (settings.intra_op_threads, settings.inter_op_threads) == (4, 1)
    assert not settings.is_parallel


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_two_pools_share_the_threads_of_a_run_in_parallel(count: int) -> None:
    settings = settings_of(config_of(ORT_EXECUTION_MODE="parallel"), "CPUExecutionProvider", count)
    extra = settings.intra_op_threads - 1 + settings.inter_op_threads - 1
    assert extra == count - 1  # the thread that calls is one of a pool's
    assert settings.is_parallel


def test_options_go_on_as_text_in_a_fixed_order() -> None:
    config = config_of(
        ORT_PROVIDER_OPTIONS={"device_id": 1, "a": "b"}, ORT_SESSION_CONFIG={"c": True}
    )
    settings = settings_of(config, "CUDAExecutionProvider", 1)
    assert settings.provider_options == (("a", "b"), ("device_id", "1"))
    assert settings.config_entries == (("c", "1"),)
    assert hash(settings) == hash(settings_of(config, "CUDAExecutionProvider", 1))


@pytest.mark.parametrize("given", ["device_id=1", {1: "x"}, {"x": None}, {"x": [1]}])
def test_options_that_are_no_text_are_refused(given: Any) -> None:
    with pytest.raises(PropertyError, match="ORT_PROVIDER_OPTIONS"):
        config_of(ORT_PROVIDER_OPTIONS=given)


def test_an_unknown_optimisation_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PropertyError, match="ENABLE_EXTENDED"):
        config_of(ORT_GRAPH_OPTIMIZATION_LEVEL="99")


def test_a_question_costs_no_threads_no_repacking_and_no_profile() -> None:
    settings = SessionSettings("P", intra_op_threads=8, profile_prefix="x", is_parallel=True)
    asked = settings.for_query()
    assert (asked.intra_op_threads, asked.profile_prefix, asked.is_parallel) == (1, "", False)
    assert asked.optimization_level == "DISABLE_ALL"
    assert ("session.disable_prepacking", "1") in asked.config_entries
    assert asked.provider == "P"
