"""cuDNN has plans for what models ask of it, in processes of their own, without a device.

All operations are planned at once, by one program with a libcuda that has no GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioinfer.backends.cuda.libraries.cudnn_conv import ACTIVATIONS
from unit.backends.cuda.libraries.conv_operation import attention_operation, conv_operation
from unit.backends.cuda.plan_only.stub_libcuda import H200, missing_reason, write_stub

pytestmark = [pytest.mark.plan, pytest.mark.timeout(240)]

_PROGRAM = Path(__file__).with_name("planning_program.py")
_PRECOMPILED_BYTES = 20_000  # a plan that cuDNN compiled for it has its code, and is larger
_NARROW = {"image": (8, 96, 56, 56), "filters": (96, 1, 3, 3), "groups": 96}


def resnet_50(dtype: str) -> dict[str, dict[str, Any]]:
    """Give the convolutions of ResNet-50 that differ, at batch 8."""
    found = {"stem": conv(dtype, 4, 64, 7, 224, stride=2, activation="relu")}
    before = 64
    for stage, (width, size) in enumerate(((64, 56), (128, 28), (256, 14), (512, 7)), 1):
        stride = 1 if stage == 1 else 2
        made, wide = 4 * width, size * stride
        layers = {
            "first": conv(dtype, before, width, 1, wide, activation="relu"),
            "reduce": conv(dtype, made, width, 1, size, activation="relu"),
            "middle": conv(dtype, width, width, 3, size, activation="relu"),
            "strided": conv(dtype, width, width, 3, wide, stride=stride, activation="relu"),
            "expand": conv(dtype, width, made, 1, size, activation="relu", has_residual=True),
            "shortcut": conv(dtype, before, made, 1, wide, stride=stride),
        }
        found.update({f"{stage} {name}": layer for name, layer in layers.items()})
        before = made
    return {f"{dtype} {name}": layer for name, layer in found.items()}


def conv(
    dtype: str, channels: int, filters: int, window: int, size: int, stride: int = 1, **given: Any
) -> dict[str, Any]:
    pads = (window // 2, window // 2)
    return parameters(
        dtype=dtype,
        image=(8, channels, size, size),
        filters=(filters, channels, window, window),
        strides=(stride, stride),
        pads_begin=pads,
        pads_end=pads,
        **given,
    )


def parameters(**given: Any) -> dict[str, Any]:
    return dict(conv_operation(**given).parameters)


RESNET = {**resnet_50("float16"), **resnet_50("float32")}
OTHERS = {
    **{
        f"activation {name}": parameters(activation=name, has_residual=True, number=0.1)
        for name in ACTIVATIONS
    },
    "strict hardswish": parameters(dtype="float32", activation="hardswish"),
    "tf32": parameters(dtype="float32", has_tf32=True, activation="relu"),
    "bfloat16": parameters(dtype="bfloat16", activation="relu", has_residual=True),
    "narrow": parameters(**_NARROW, activation="silu"),
    "narrow in bfloat16": parameters(**_NARROW, dtype="bfloat16", activation="relu"),
    "one channel in bfloat16": parameters(
        dtype="bfloat16", image=(8, 1, 28, 28), filters=(32, 1, 3, 3), activation="silu"
    ),
    "grouped": parameters(image=(8, 128, 28, 28), filters=(128, 4, 3, 3), groups=32),
    "dilated": parameters(dilations=(2, 2), pads_begin=(2, 2), pads_end=(2, 2)),
    "uneven pads": parameters(pads_begin=(0, 1), pads_end=(1, 2), activation="relu"),
    "three channels": parameters(image=(1, 3, 224, 224), filters=(32, 3, 3, 3), strides=(2, 2)),
    "odd channels": parameters(image=(1, 17, 20, 20), filters=(33, 17, 1, 1)),
}


def attention(
    batch: int, heads: int, queries: int, keys: int, head: int, **given: Any
) -> dict[str, Any]:
    """Give an attention whose heads are columns of rows that are packed, for equal lengths."""
    width = heads * head
    pitch = 3 * width if queries == keys else width
    strides = {
        f"{name}_strides": (rows * step, head, step, 1)
        for name, rows, step in (
            ("q", queries, pitch),
            ("k", keys, pitch),
            ("v", keys, pitch),
            ("o", queries, width),
        )
    }
    sizes = {"batch": batch, "heads": heads, "queries": queries, "keys": keys, "head": head}
    made = attention_operation(**sizes, **strides, workspace_bytes=32 << 20, **given)
    return dict(made.parameters)


ATTENTIONS = {
    "bert": attention(8, 12, 128, 128, 64),
    "bert with a mask": attention(8, 12, 128, 128, 64, has_mask=True, mask_shape=(8, 1, 1, 128)),
    "bert in bfloat16": attention(
        8, 12, 128, 128, 64, dtype="bfloat16", has_mask=True, mask_shape=(8, 1, 1, 128)
    ),
    "an image": attention(1, 12, 197, 197, 64),
    "odd lengths": attention(3, 4, 77, 131, 40, has_mask=True, mask_shape=(3, 1, 77, 131)),
    "one query": attention(1, 8, 1, 513, 128),
    "short heads": attention(2, 8, 64, 64, 8),
}
COUNTED = {
    "relu": parameters(activation="relu", has_residual=True),
    "strict": parameters(dtype="float32", activation="relu"),
    "tf32": OTHERS["tf32"],
    "attention": ATTENTIONS["bert"],
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Plan everything."""
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("plans")
    write_stub(folder)
    asked = {
        "device": H200,
        "folder": str(folder / "cache"),
        "operations": {**RESNET, **OTHERS, **ATTENTIONS},
        "counted": COUNTED,
    }
    done = subprocess.run(
        [sys.executable, str(_PROGRAM)],
        input=json.dumps(asked),
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("name", list(RESNET))
def test_a_convolution_of_resnet_50_has_a_precompiled_plan(
    answered: dict[str, Any], name: str
) -> None:
    made = answered["planned"][name]
    assert made.get("error") is None
    assert made["blob_bytes"] < _PRECOMPILED_BYTES
    assert made["again"] == made["workspace_bytes"] <= RESNET[name]["workspace_bytes"]


@pytest.mark.parametrize("name", [*OTHERS, *ATTENTIONS])
def test_what_other_models_ask_for_has_a_plan(answered: dict[str, Any], name: str) -> None:
    made = answered["planned"][name]
    assert made.get("error") is None
    assert made["again"] == made["workspace_bytes"]


def test_there_are_many_plans_to_choose_from(answered: dict[str, Any]) -> None:
    assert answered["counts"]["relu"] >= 20
    assert answered["counts"]["attention"] >= 2


def test_strict_float32_has_fewer_plans_than_tf32(answered: dict[str, Any]) -> None:
    counts = answered["counts"]
    assert 1 <= counts["strict"] < counts["tf32"]


def test_processes_wait_for_more_when_all_is_planned(answered: dict[str, Any]) -> None:
    assert answered["workers"] == "<PlanWorkers 0 busy, 2 idle>"
