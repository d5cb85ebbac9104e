from aioinfer.backends.ort.providers import Providers, device_id_of, sample_model
from aioinfer.runtime.graph import DType, check_graph


def test_a_provider_is_a_device_by_its_short_name() -> None:
    assert device_id_of("CPUExecutionProvider") == "CPU"
    assert device_id_of("CoreMLExecutionProvider") == "COREML"
    assert device_id_of("Homemade") == "HOMEMADE"


def test_only_providers_that_take_a_node_are_there_and_the_fallback_is_first() -> None:
    asked = []

    def takes_nodes(provider: str) -> bool:
        asked.append(provider)
        return provider == "GoodExecutionProvider"

    listed = ["BrokenExecutionProvider", "GoodExecutionProvider", "CPUExecutionProvider"]
    providers = Providers("CPUExecutionProvider", listed, takes_nodes)
    assert asked == []
    assert providers.by_id == {"CPU": "CPUExecutionProvider", "GOOD": "GoodExecutionProvider"}
    assert list(providers.by_id) == ["CPU", "GOOD"]
    assert asked == ["BrokenExecutionProvider", "GoodExecutionProvider"]  # once each


def test_a_build_without_the_fallback_does_not_have_it() -> None:
    providers = Providers("CPUExecutionProvider", ["XExecutionProvider"], lambda provider: True)
    assert list(providers.by_id) == ["X"]


def test_the_sample_is_a_valid_graph_of_each_type() -> None:
    for dtype in (DType.FLOAT32, DType.BFLOAT16, DType.INT8):
        check_graph(sample_model(dtype).graph)
