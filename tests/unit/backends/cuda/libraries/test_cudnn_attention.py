"""What cuDNN is told of an attention."""

from __future__ import annotations

from typing import Any

import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError
from aioinfer.backends.cuda.libraries.cudnn_attention import describe_attention
from aioinfer.backends.cuda.libraries.cudnn_builder import make_graph
from unit.backends.cuda.libraries.conv_operation import attention_operation
from unit.backends.cuda.libraries.fake_cudnn import FakeFrontend


def test_heads_are_views_of_packed_rows() -> None:
    description = describe_attention(attention_operation(keys=32))
    assert [(item.name, item.dims) for item in description.tensors] == [
        ("q", (2, 12, 128, 64)),
        ("k", (2, 12, 32, 64)),
        ("v", (2, 12, 32, 64)),
        ("o", (2, 12, 128, 64)),
    ]
    assert description.tensors[0].strides == (128 * 12 * 64, 64, 12 * 64, 1)


def test_the_mask_is_a_dense_tensor_that_broadcasts() -> None:
    description = describe_attention(attention_operation(has_mask=True, mask_shape=(2, 1, 1, 128)))
    (mask,) = (item for item in description.tensors if item.name == "mask")
    assert (mask.dims, mask.strides) == ((2, 1, 1, 128), (128, 128, 128, 1))


def test_the_frontend_is_asked_for_results_without_statistics() -> None:
    frontend = FakeFrontend()
    operation = attention_operation(has_mask=True, mask_shape=(1, 1, 128, 128))
    graph: Any = make_graph(frontend, describe_attention(operation))
    ((name, given),) = graph.calls
    assert name == "sdpa"
    assert given["generate_stats"] is False
    assert given["attn_scale"] == 0.125
    assert [given[key].fields["uid"] for key in ("q", "k", "v", "bias")] == [1, 2, 3, 4]


@pytest.mark.parametrize("given", [{"dtype": "float32"}, {"head": 60}])
def test_what_cudnn_has_on_no_device_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(DriverError, match=r"attention of .* multiple of 8"):
        describe_attention(attention_operation(**given))
