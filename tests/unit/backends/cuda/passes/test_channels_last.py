"""Which nodes get channels last, and what stands at the borders: graphs before and after."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.backends.accelerator.passes import plan_passes
from aioinfer.backends.cuda.passes import cuda_plan_passes
from aioinfer.backends.cuda.passes.channels_last import ChannelsLast
from aioinfer.runtime.graph import Model, Node, check_graph
from aioinfer.runtime.onnx_native import infer_types
from aioinfer.runtime.passes import ConstantFolding, DeadCode, run_passes
from onnx_text import parse


def turned(text: str) -> list[str]:
    """Run the passes of a plan, and print the nodes: `y = Conv(x, w) [Relu(acc)]`."""
    model: Model = parse(text)
    infer_types(model)
    run_passes(model, (ConstantFolding(), *plan_passes(), ChannelsLast(), DeadCode()))
    check_graph(model.graph)
    assert run_passes(model, (ChannelsLast(),)).patch_count == 0
    return [line(node) for node in model.graph.nodes]


def line(node: Node) -> str:
    inputs = ", ".join("_" if value is None else value.name for value in node.inputs)
    steps = " ".join(str(step).split(":")[0] for step in node.attributes.get("steps", ()))
    known = ("axis", "axes", "perm", "channels")
    marks = [f"{key}={node.attributes[key]}" for key in known if key in node.attributes]
    text = f"{', '.join(value.name for value in node.outputs)} = {node.op_type}({inputs})"
    return " ".join([text, *marks, *([f"[{steps}]"] if steps else [])])


def test_a_graph_without_convolutions_stays_as_it_is() -> None:
    assert turned(
        "g (float[1,4,5,5] x) => (float[1,4,2,2] y) { y = MaxPool<kernel_shape=[3,3]>(x) }"
    ) == ["y = MaxPool(x)"]


def test_transposes_stand_at_the_borders_alone() -> None:
    assert turned(
        """g (float[1,8,9,9] x, float[8,8,3,3] w, float[8,8,3,3] v) => (float[1,8,5,5] y) {
            a = Conv(x, w)
            b = Relu(a)
            y = Conv(b, v)
        }"""
    ) == [
        "x_last = ToChannelsLast(x) channels=8",
        "b_last = Conv(x_last, w, _) [Relu(acc)]",
        "y_last = Conv(b_last, v)",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_a_residual_network_is_turned_as_a_whole() -> None:
    assert turned(
        """g (float[1,8,8,8] x, float[8,8,3,3] w, float[8,8,1,1] v) => (float[1,8] y) {
            a = Relu(x)
            b = Conv<pads=[1,1,1,1]>(a, w)
            c = Conv(b, v)
            d = Add(c, a)
            e = Relu(d)
            p = GlobalAveragePool(e)
            y = Flatten(p)
        }"""
    ) == [
        "a = Relu(x)",
        "a_last = ToChannelsLast(a) channels=8",
        "b_last = Conv(a_last, w)",
        "e_last = Conv(b_last, v, _, a_last) [Add(acc,i3) Relu(s0)]",
        "p_last = GlobalAveragePool(e_last)",
        "p = Transpose(p_last) perm=[0, 3, 1, 2]",
        "y = Flatten(p)",
    ]


def test_a_first_convolution_gets_channels_of_zeros() -> None:
    assert turned(
        """g (float[1,3,8,8] x) => (float[1,8,6,6] y) <float[8,3,3,3] w = {0}> {
            y = Conv(x, w)
        }""".replace("= {0}", "= {" + ", ".join(["1"] * 216) + "}")
    ) == [
        "x_last = ToChannelsLast(x) channels=4",
        "y_last = Conv(x_last, w)",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_filters_that_come_with_the_run_get_no_channels_of_zeros() -> None:
    assert (
        turned("g (float[1,3,8,8] x, float[8,3,3,3] w) => (float[1,8,6,6] y) { y = Conv(x, w) }")[0]
        == "x_last = ToChannelsLast(x) channels=3"
    )


def test_what_prepares_an_image_is_done_on_the_way() -> None:
    assert turned(
        """g (uint8[1,4,8,8] x, float[8,4,3,3] w) => (float[1,8,6,6] y)
        <float[1,4,1,1] m = {1, 2, 3, 4}, float[1] s = {2}> {
            a = Cast<to=1>(x)
            b = Sub(a, m)
            c = Div(b, s)
            y = Conv(c, w)
        }"""
    ) == [
        "c_last = ToChannelsLast(x, m, s) channels=4 [Cast(i0) Sub(s0,i1) Div(s1,i2)]",
        "y_last = Conv(c_last, w)",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_each_channel_alone_is_turned_without_more_channels() -> None:
    assert turned(
        """g (float[1,6,8,8] x, float[6,1,3,3] w) => (float[1,6,6,6] y) {
            a = Conv<group=6>(x, w)
            y = Sigmoid(a)
        }"""
    ) == [
        "x_last = ToChannelsLast(x) channels=6",
        "y_last = Conv(x_last, w, _) [Sigmoid(acc)]",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_channels_are_joined_cut_padded_and_resized_along_other_axes() -> None:
    assert turned(
        """g (float[1,4,8,8] x, float[4,4,1,1] w, float[4,4,1,1] v) => (float[1,8,6,10] y)
        <int64[8] p = {0, 0, 1, 2, 0, 0, 3, 4}, float[4] s = {1, 1, 0.5, 1},
         int64[1] b = {1}, int64[1] e = {6}, int64[1] t = {-3}, float[0] roi = {}> {
            a = Conv(x, w)
            c = Conv(x, v)
            d = Concat<axis=-3>(a, c)
            f = Pad(d, p)
            h = Resize(f, roi, s)
            k = Split<axis=1, num_outputs=2>(h)
            y = Slice(h, b, e, t)
        }""".replace(
            "k = Split<axis=1, num_outputs=2>(h)", "k, l = Split<axis=1, num_outputs=2>(h)"
        )
    )[1:] == [
        "a_last = Conv(x_last, w)",
        "c_last = Conv(x_last, v)",
        "d_last = Concat(a_last, c_last) axis=3",
        "f_last = Pad(d_last, p_last)",
        "h_last = Resize(f_last, roi, s_last)",
        "y_last = Slice(h_last, b, e, t_last)",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_constants_are_moved_with_the_axes_that_they_are_of() -> None:
    model: Model = parse(
        """g (float[1,4,8,8] x, float[4,4,1,1] w, float[4,4,1,1] v) => (float[1,4,6,14] y)
        <int64[8] p = {0, 0, 1, 2, 0, 0, 3, 4}, float[4] s = {1, 1, 0.5, 1}, float[0] roi = {},
         float[4,1,1] c = {1, 2, 3, 4}> {
            a = Conv(x, w)
            d = Pad(a, p)
            f = Resize(d, roi, s)
            h = Softmax<axis=1>(f)
            k = ReduceMean<keepdims=1>(h)
            l = Exp(f)
            m = Mul(l, c)
            n = Add(m, f)
            o = Mul(n, k)
            y = Conv(o, v)
        }"""
    )
    infer_types(model)
    run_passes(model, (*plan_passes(), ChannelsLast(), DeadCode()))
    found = {
        value.name: np.asarray(value.constant).tolist()
        for value in model.graph.initializers.values()
        if value.name.endswith("_last")
    }
    assert found["p_last"] == [0, 1, 2, 0, 0, 3, 4, 0]
    assert found["s_last"] == [1, 0.5, 1, 1]
    assert found["c_last"] == [[[[1, 2, 3, 4]]]]


def test_a_value_that_both_kinds_use_is_there_in_both_orders() -> None:
    assert turned(
        """g (float[1,4,8,8] x, float[4,4,1,1] w, float[4,4,1,1] v)
        => (float[32,8] z, float[1,4,8,8] y) {
            a = Conv(x, w)
            y = Conv(a, v)
            z = Flatten<axis=3>(a)
        }"""
    ) == [
        "x_last = ToChannelsLast(x) channels=4",
        "a_last = Conv(x_last, w)",
        "a = Transpose(a_last) perm=[0, 3, 1, 2]",
        "y_last = Conv(a_last, v)",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
        "z = Flatten(a) axis=3",
    ]


def test_an_output_that_is_used_again_is_turned_once() -> None:
    assert turned(
        """g (float[1,4,8,8] x, float[4,4,1,1] w, float[4,4,1,1] v)
        => (float[1,4,8,8] a, float[1,4,8,8] y) {
            a = Conv(x, w)
            b = Conv(a, v)
            y = Add(b, a)
        }"""
    ) == [
        "x_last = ToChannelsLast(x) channels=4",
        "a_last = Conv(x_last, w)",
        "a = Transpose(a_last) perm=[0, 3, 1, 2]",
        "y_last = Conv(a_last, v, _, a_last) [Add(acc,i3)]",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_transposes_of_the_model_around_a_convolution_cancel() -> None:
    assert turned(
        """g (float[1,8,8,4] x, float[4,4,1,1] w) => (float[1,8,8,4] y, float[1,8,8,4] z) {
            a = Transpose<perm=[0,3,1,2]>(x)
            b = Conv(a, w)
            c = Transpose<perm=[0,2,3,1]>(b)
            y = Exp(c)
            z = Neg(c)
        }"""
    ) == [
        "b_last = Conv(x, w)",
        "y = Exp(b_last)",
        "z = Neg(b_last)",
    ]


def test_an_operator_with_channels_first_alone_is_surrounded() -> None:
    assert turned(
        """g (float[1,4,8,8] x, float[4,4,1,1] w, float[4,4,1,1] v) => (float[1,4,8,8] y)
        <float[4] s = {1, 2, 3, 4}, float[4] b = {1, 2, 3, 4}> {
            a = Conv(x, w)
            c = InstanceNormalization(a, s, b)
            y = Conv(c, v)
        }"""
    ) == [
        "x_last = ToChannelsLast(x) channels=4",
        "a_last = Conv(x_last, w)",
        "a = Transpose(a_last) perm=[0, 3, 1, 2]",
        "c = InstanceNormalization(a, s, b)",
        "c_last = ToChannelsLast(c) channels=4",
        "y_last = Conv(c_last, v)",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_a_transposed_convolution_goes_along() -> None:
    text = """g (float[1,4,8,8] x, float[4,4,1,1] w, float[4,4,2,2] v, float[4,4,1,1] u)
        => (float[1,4,16,16] y) {
            a = Conv(x, w)
            b = ConvTranspose<strides=[2,2]>(a, v)
            c = Relu(b)
            y = Conv(c, u)
        }"""
    assert turned(text)[1:] == [
        "a_last = Conv(x_last, w)",
        "c_last = ConvTranspose(a_last, v, _) [Relu(acc)]",
        "y_last = Conv(c_last, u)",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_what_costs_more_to_turn_than_it_gains_keeps_channels_first() -> None:
    """A sum of three images that come with the run would need three Transposes for one."""
    assert turned(
        """g (float[1,4,8,8] x, float[1,4,8,8] p, float[1,4,8,8] q, float[4,4,1,1] w)
        => (float[1,4,8,8] y, float[1,4,8,8] s) {
            a = Add(x, p)
            s = Add(a, q)
            y = Conv(s, w)
        }"""
    ) == [
        "s = FusedElementwise(x, p, q) [Add(i0,i1) Add(s0,i2)]",
        "s_last = ToChannelsLast(s) channels=4",
        "y_last = Conv(s_last, w)",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_a_gate_of_one_number_a_channel_is_turned_for_nothing() -> None:
    assert turned(
        """g (float[1,4,8,8] x, float[1,4] u, float[4,4,1,1] w) => (float[1,4,8,8] y)
        <int64[4] s = {1, 4, 1, 1}> {
            a = Conv(x, w)
            g = Reshape(u, s)
            y = Mul(g, a)
        }"""
    ) == [
        "g = Reshape(u, s)",
        "x_last = ToChannelsLast(x) channels=4",
        "g_last = Transpose(g) perm=[0, 2, 3, 1]",
        "y_last = Conv(x_last, w, _, g_last) [Mul(i3,acc)]",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_an_operand_of_fewer_axes_is_seen_anew() -> None:
    assert turned(
        """g (float[1,4,8,8] x, float[4,1,1] u, float[4,8,8] v, float[4,4,1,1] w)
        => (float[1,4,8,8] y) {
            a = Conv(x, w)
            b = Mul(a, u)
            y = Add(b, v)
        }"""
    ) == [
        "x_last = ToChannelsLast(x) channels=4",
        "u_wide = Reshape(u, u_shape_last)",
        "v_wide = Reshape(v, v_shape_last)",
        "v_last = Transpose(v_wide) perm=[0, 2, 3, 1]",
        "y_last = Conv(x_last, w, _, u_wide, v_last) [Mul(acc,i3) Add(s0,i4)]",
        "y = Transpose(y_last) perm=[0, 3, 1, 2]",
    ]


def test_one_axis_of_places_is_turned_and_three_are_not() -> None:
    assert turned(
        """g (float[1,4,9] x, float[4,4,3] w, float[1,4,5,5,5] u, float[4,4,1,1,1] v)
        => (float[1,4,7] y, float[1,4,5,5,5] z) {
            y = Conv(x, w)
            z = Conv(u, v)
        }"""
    ) == [
        "x_last = ToChannelsLast(x) channels=4",
        "y_last = Conv(x_last, w)",
        "y = Transpose(y_last) perm=[0, 2, 1]",
        "z = Conv(u, v)",
    ]


@pytest.mark.parametrize(
    ("axes", "is_kept"), [("2, 3", True), ("1", True), ("1, 3", True), ("3", False)]
)
def test_a_reduction_that_drops_axes_is_turned_where_both_orders_give_the_same(
    axes: str, is_kept: bool
) -> None:
    count = len(axes.split(","))
    lines = turned(
        f"""g (float[2,4,8,8] x, float[4,4,1,1] w) => (float y) <int64[{count}] r = {{{axes}}}> {{
            a = Conv(x, w)
            y = ReduceMean<keepdims=0>(a, r)
        }}"""
    )
    assert any("Transpose" in line for line in lines) is not is_kept


def test_a_body_of_control_flow_reads_channels_first() -> None:
    lines = turned(
        """g (bool c, float[1,4,8,8] x, float[4,4,1,1] w) => (float[1,4,8,8] y) {
            a = Conv(x, w)
            y = If (c) <
                then_branch = t () => (float[1,4,8,8] p) { p = Relu(a) },
                else_branch = e () => (float[1,4,8,8] q) { q = Neg(a) }
            >
        }"""
    )
    assert "a = Transpose(a_last) perm=[0, 3, 1, 2]" in lines


def test_the_pass_is_there_for_cudnn_alone_and_can_be_left_out() -> None:
    def names(*arguments: object) -> list[str]:
        return [item.name for item in cuda_plan_passes(*arguments)]  # type: ignore[arg-type]

    assert "channels last" in names(frozenset({"cudnn", "cublas"}))
    assert "channels last" not in names(frozenset({"cublas"}))
    assert "channels last" not in names(frozenset({"cudnn"}), ("channels last",))
