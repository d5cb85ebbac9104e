"""Write the graph of a BERT sentence encoder in ONNX, the way an exporter does.

Plain operators only: attention and GELU are spelled out, as files in the wild have them, and shapes
are dynamic. Mean pooling over the tokens and L2 normalisation are part of the graph.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 8
OPSET = 17

Weights = Mapping[str, NDArray[np.float32]]


def build_model(config: Mapping[str, Any], weights: Weights) -> onnx.ModelProto:
    """Give the checked model of a BERT encoder; config and weights as Hugging Face names them.

    Inputs: ``input_ids`` and ``attention_mask`` (1 for a token, 0 for padding), both int64 (batch,
    sequence), with a sequence of at most ``max_position_embeddings``. Output: ``embedding``,
    float32 (batch, hidden size), rows of length 1. Raises ValueError for another kind of BERT.
    """
    for key, known in (("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config[key] != known:
            raise ValueError(f"{key} is {config[key]!r} in the config; only {known!r} is built")
    encoder = _EncoderWriter(config, weights)
    encoder.write()
    hidden_size = weights["embeddings.word_embeddings.weight"].shape[1]
    per_token = ["batch", "sequence"]
    graph = helper.make_graph(
        encoder.nodes,
        "minilm",
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, per_token),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, per_token),
        ],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", hidden_size])],
        [numpy_helper.from_array(array, name) for name, array in encoder.constants.items()],
    )
    model = helper.make_model(
        graph,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="aioinfer-examples",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class _EncoderWriter:
    """Appends nodes; each method returns the name of the value that it computes.

    A node is named after the part of the network that it belongs to, as the weights are, and its
    operator: ``encoder.layer.0.attention.self.query/MatMul``.
    """

    def __init__(self, config: Mapping[str, Any], weights: Weights) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self._config, self._weights = config, weights
        self._name_counts: Counter[str] = Counter()

    def write(self) -> None:
        hidden = self._embeddings()
        mask_bias = self._mask_bias()
        for layer in range(self._config["num_hidden_layers"]):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, mask_bias)
        self._normalize(self._mean_pooling(hidden))

    def _embeddings(self) -> str:
        """Words, positions and token type 0 (there is but one sentence): (batch, seq, hidden)."""
        scope = "embeddings"
        words = self._weight(f"{scope}.word_embeddings.weight")
        words = self._node(scope, "Gather", words, "input_ids")
        length = self._node(scope, "Shape", "input_ids", start=1, end=2)
        positions = self._weight(f"{scope}.position_embeddings.weight")
        begin, axis = self._integers("first_position", 0), self._integers("axis_0", 0)
        positions = self._node(scope, "Slice", positions, begin, length, axis)
        types = self._weights[f"{scope}.token_type_embeddings.weight"]
        token_type = self._constant(f"{scope}.token_type_0", types[0])
        hidden = self._node(scope, "Add", self._node(scope, "Add", words, token_type), positions)
        return self._layer_norm(f"{scope}.LayerNorm", hidden)

    def _mask_bias(self) -> str:
        """What is added to attention scores: 0 for a token, the lowest float for padding."""
        scope = "mask"
        mask = self._node(scope, "Unsqueeze", "attention_mask", self._integers("axes_1_2", 1, 2))
        mask = self._node(scope, "Cast", mask, to=TensorProto.FLOAT)
        is_padding = self._node(scope, "Sub", self._number("one", 1.0), mask)
        lowest = self._number("lowest", float(np.finfo(np.float32).min))
        return self._node(scope, "Mul", is_padding, lowest)

    def _layer(self, scope: str, hidden: str, mask_bias: str) -> str:
        attended = self._attention(f"{scope}.attention.self", hidden, mask_bias)
        hidden = self._output(f"{scope}.attention.output", attended, hidden)
        wide = self._linear(f"{scope}.intermediate.dense", hidden)
        return self._output(f"{scope}.output", self._gelu(f"{scope}.intermediate", wide), hidden)

    def _attention(self, scope: str, hidden: str, mask_bias: str) -> str:
        hidden_size, head_count = self._config["hidden_size"], self._config["num_attention_heads"]
        head_size = hidden_size // head_count
        split = self._integers("to_heads", 0, 0, head_count, head_size)

        def heads(part: str, order: list[int]) -> str:
            projected = self._linear(f"{scope}.{part}", hidden)
            reshaped = self._node(f"{scope}.{part}", "Reshape", projected, split)
            return self._node(f"{scope}.{part}", "Transpose", reshaped, perm=order)

        query, key, value = (
            heads("query", [0, 2, 1, 3]),
            heads("key", [0, 2, 3, 1]),
            heads("value", [0, 2, 1, 3]),
        )
        scale = self._number("head_scale", math.sqrt(head_size))
        scores = self._node(scope, "Div", self._node(scope, "MatMul", query, key), scale)
        shares = self._node(scope, "Softmax", self._node(scope, "Add", scores, mask_bias), axis=-1)
        mixed = self._node(scope, "MatMul", shares, value)
        mixed = self._node(scope, "Transpose", mixed, perm=[0, 2, 1, 3])
        return self._node(scope, "Reshape", mixed, self._integers("join", 0, 0, hidden_size))

    def _output(self, scope: str, x: str, residual: str) -> str:
        added = self._node(scope, "Add", self._linear(f"{scope}.dense", x), residual)
        return self._layer_norm(f"{scope}.LayerNorm", added)

    def _gelu(self, scope: str, x: str) -> str:
        """The exact one: x * (1 + erf(x / sqrt(2))) / 2."""
        scaled = self._node(scope, "Div", x, self._number("sqrt_2", math.sqrt(2.0)))
        error = self._node(scope, "Erf", scaled)
        share = self._node(scope, "Add", error, self._number("one", 1.0))
        return self._node(
            scope, "Mul", self._node(scope, "Mul", x, share), self._number("half", 0.5)
        )

    def _linear(self, scope: str, x: str) -> str:
        matrix = self._weights[f"{scope}.weight"]  # (out, in); MatMul wants (in, out)
        matrix_name = self._constant(f"{scope}.weight", np.ascontiguousarray(matrix.T))
        product = self._node(scope, "MatMul", x, matrix_name)
        return self._node(scope, "Add", product, self._weight(f"{scope}.bias"))

    def _layer_norm(self, scope: str, x: str) -> str:
        scale, bias = self._weight(f"{scope}.weight"), self._weight(f"{scope}.bias")
        epsilon = self._config["layer_norm_eps"]
        return self._node(scope, "LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def _mean_pooling(self, hidden: str) -> str:
        """The mean over a sentence's tokens, without the padding: (batch, hidden)."""
        scope, axis = "pooling", self._integers("axis_1", 1)
        mask = self._node(scope, "Unsqueeze", "attention_mask", self._integers("axis_2", 2))
        mask = self._node(scope, "Cast", mask, to=TensorProto.FLOAT)
        kept = self._node(scope, "Mul", hidden, mask)
        total = self._node(scope, "ReduceSum", kept, axis, keepdims=0)
        count = self._node(scope, "ReduceSum", mask, axis, keepdims=0)
        count = self._node(scope, "Clip", count, self._number("least_count", 1e-9))
        return self._node(scope, "Div", total, count)

    def _normalize(self, pooled: str) -> None:
        scope = "normalize"
        length = self._node(scope, "ReduceL2", pooled, axes=[1], keepdims=1)
        length = self._node(scope, "Clip", length, self._number("least_length", 1e-12))
        self._node(scope, "Div", pooled, length, output="embedding")

    def _node(
        self, scope: str, op: str, *inputs: str, output: str | None = None, **attributes: Any
    ) -> str:
        name = f"{scope}/{op}"
        earlier_count = self._name_counts[name]
        self._name_counts[name] += 1
        if earlier_count:
            name = f"{name}_{earlier_count}"
        output = output or f"{name}_output"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def _weight(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _number(self, name: str, value: float) -> str:
        return self._constant(name, np.array(value, np.float32))

    def _integers(self, name: str, *values: int) -> str:
        return self._constant(name, np.array(values, np.int64))

    def _constant(self, name: str, array: np.ndarray) -> str:
        self.constants[name] = array
        return name
