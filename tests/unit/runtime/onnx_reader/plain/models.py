"""Small models for the tests of the reader that does without onnx, as the bytes of files."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto, helper

__all__ = ["BRANCHES", "model_bytes", "parsed", "single_node", "with_branches"]

BRANCHES = {
    "captured": "p = Add (r, w)",
    "passed through": "p = Identity (r)",
    "constants": "k = Constant <value_ints = [0]> () o = Unsqueeze (r, k) p = Squeeze (o, k)",
    "changed since": "l, n = Split <axis = 0> (r) p = Concat <axis = 0> (n, l)",
    "as long as the data": "z = NonZero (r) z_t = Transpose (z) f = Cast <to = 1> (z_t) "
    "k = Constant <value_ints = [0, 1]> () o = Slice (f, k, k) p = Pad (f, o)",
    "nested": """i = Cast <to = 9> (w) p = If (c) <
        then_branch = a () => (float[u, 3] b) { h = Mul (r, w) b = Neg (h) },
        else_branch = d () => (float[u, 3] e) { e = Abs (x) }>""",
}
"""What a branch of ``with_branches`` may hold, which makes p of r, w and c."""


def model_bytes(nodes: list[onnx.NodeProto], opset: int = 17, **more: Any) -> bytes:
    """Make a model of input x [2,3] float32 and output y, as the bytes of a file."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, more.pop("shape", [2, 3]))],
        more.pop("outputs", [helper.make_empty_tensor_value_info("y")]),
        more.pop("initializer", []),
    )
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)
    return bytes(model.SerializeToString())


def single_node(op: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), ["y"], f"{op}_0", **attributes)


def with_branches(then: str, other: str = "q = Neg (x)", opset: int = 17) -> bytes:
    graph = f"""g (bool c, float[2, 3] x) => (float[d, e] y) <float[1] w = {{2}}> {{
        r = Mul (x, w)
        y = If (c) <
            then_branch = t () => (float[k, 3] p) {{ {then} }},
            else_branch = f () => (float[m, 3] q) {{ {other} }}
        >
    }}"""
    return parsed(graph, opset)


def parsed(graph: str, opset: int = 17) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {graph}')
    return bytes(model.SerializeToString())
