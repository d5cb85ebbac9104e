"""The partition told as text, and as data."""

from __future__ import annotations

import pytest

import aioinfer
from aioinfer.backends.hetero.explain import bytes_text, explain_partition, size_text
from aioinfer.backends.hetero.partition import Cut, Partition
from aioinfer.runtime.graph import DType, OptionalType, TensorType
from aioinfer.testing import MockDevices
from unit.backends.hetero.small_graphs import affinity, graph

# p -> a@0 -> b@1 -> d@0
#       +------------> d     f: nodes of constants only
TEXT = "a@0 = Relu(p)\nf@0 = Neg(k)\nb@1 = Add(a, f)\nd@0 = Mul(a, b)"


@pytest.fixture
def network(core: aioinfer.Core) -> aioinfer.ExecutableNetwork:
    config = {"AFFINITY": affinity(TEXT, "REFERENCE"), "EXPORTABLE": True}
    return core.load_network(graph(TEXT, "d"), "HETERO:REFERENCE.0,REFERENCE.1", config)


def test_explain_says_what_runs_where_and_why_and_what_crosses(
    network: aioinfer.ExecutableNetwork,
) -> None:
    assert network.explain().splitlines() == [
        "small on REFERENCE.0, REFERENCE.1: 3 nodes in 3 subgraphs, 2 values cross 3 cuts (72 B)",
        "by the order of the devices, estimated: 206 µs a run; what crosses takes 300 µs "
        "if nothing runs beside it",
        "subgraph 0 on REFERENCE.0: 1 node",
        "  in: p  out: a",
        "  a (Relu)  asked for by AFFINITY",
        "subgraph 1 on REFERENCE.1: 1 node, after 0",
        "  in: a  out: b",
        "  b (Add)  asked for by AFFINITY",
        "subgraph 2 on REFERENCE.0: 1 node, after 0 and 1",
        "  in: a, b  out: d",
        "  d (Mul)  asked for by AFFINITY",
        "cuts:",
        "  0 -> 1  a  float32[2,3], 24 B",
        "  0 -> 2  a  float32[2,3], 24 B",
        "  1 -> 2  b  float32[2,3], 24 B",
        "not executed, passes have made them needless: f",
    ]


# Ten pairs of tiny nodes, of which the second device alone takes the one, both take the other.
def test_dear_cuts_are_told_with_the_policy_that_avoids_them(core: aioinfer.Core) -> None:
    lines = [f"a{n}@0 = Relu({f'b{n - 1}' if n else 'p'})\nb{n}@1 = Neg(a{n})" for n in range(10)]
    model, device = graph("\n".join(lines), "b9"), "HETERO:MOCK.0,MOCK.1"
    devices = MockDevices(2)
    devices[0].refused_ops["Neg"] = "it cannot count below zero"
    core.register_plugin("MOCK", devices.make_plugin)
    wanted = "; PARTITION_POLICY=LATENCY would divide for"
    with core.load_network(model, device) as network:
        assert wanted in network.explain().splitlines()[1]
        assert len(network.partition.subgraphs) == 20
        text = network.explain()
    assert core.divide_network(model, device).explain() == text
    division = core.divide_network(model, device, {"PARTITION_POLICY": "LATENCY"})
    assert [part.device for part in division.partition.subgraphs] == ["MOCK.1"]
    kept = core.divide_network(model, device, {"AFFINITY": {f"b{n}": "MOCK.1" for n in range(10)}})
    assert len(kept.partition.subgraphs) == 20


def test_a_network_that_is_not_cut_tells_no_costs(core: aioinfer.Core) -> None:
    division = core.divide_network(graph("a@0 = Relu(p)", "a"), "HETERO:REFERENCE.0,REFERENCE.1")
    assert "estimated" not in division.explain()


def test_an_imported_network_tells_what_its_cuts_cost(network: aioinfer.ExecutableNetwork) -> None:
    assert network.partition.expected is None
    text = network.explain()
    with aioinfer.Core() as core, core.import_network(network.export()) as imported:
        assert imported.explain() == text


def test_explain_goes_on_when_no_device_can_be_asked(core: aioinfer.Core) -> None:
    with aioinfer.Core() as own:
        config = {"AFFINITY": affinity(TEXT, "REFERENCE")}
        network = own.load_network(graph(TEXT, "d"), "HETERO:REFERENCE.0,REFERENCE.1", config)
    assert network.explain().splitlines()[1].startswith("subgraph 0")


def test_the_same_as_data(network: aioinfer.ExecutableNetwork) -> None:
    partition: Partition = network.partition
    assert partition.devices == ("REFERENCE.0", "REFERENCE.1")
    assert [(s.index, s.device, s.inputs, s.outputs, s.needs) for s in partition.subgraphs] == [
        (0, "REFERENCE.0", ("p",), ("a",), ()),
        (1, "REFERENCE.1", ("a",), ("b",), (0,)),
        (2, "REFERENCE.0", ("a", "b"), ("d",), (0, 1)),
    ]
    kind = TensorType(DType.FLOAT32, (2, 3))
    assert partition.cuts == (
        Cut("a", kind, 0, 1, 24),
        Cut("a", kind, 0, 2, 24),
        Cut("b", kind, 1, 2, 24),
    )
    assert partition.crossing_value_count == 2
    assert partition.removed_nodes == ("f",)


def test_a_refusal_is_told_where_it_moved_a_node(core: aioinfer.Core, mock: MockDevices) -> None:
    mock[0].refused_ops["Neg"] = "it cannot count below zero"
    with core.load_network(
        graph("a@0 = Relu(p)\nb@0 = Neg(a)", "b"), "HETERO:MOCK.0,MOCK.1"
    ) as net:
        text = net.explain()
    assert (
        "b (Neg)  first device in the list that supports it (refused by MOCK.0: it cannot" in text
    )


def test_a_node_that_stands_for_several_is_shown_by_their_names(core: aioinfer.Core) -> None:
    proto = graph("a@0 = Relu(p)\nb@0 = Relu(p)\nc@0 = Add(a, b)", "c")
    with core.load_network(proto, "HETERO:REFERENCE.0") as network:
        assert "  a, b (Relu)  first device" in network.explain()
        assert "nothing crosses" in network.explain()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (2_500_000, "2.5 MB"),
        (4 * 10**12, "4000.0 GB"),
    ],
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_a_size_that_depends_on_symbols_names_them() -> None:
    assert size_text(TensorType(DType.FLOAT32, ("n", 4, None)), None) == "16 B × n × ?"
    assert size_text(TensorType(DType.FLOAT32, None), None) == "? B"
    assert size_text(OptionalType(None), None) == "? B"
    assert size_text(None, None) == "? B"


def test_an_empty_partition_is_explained() -> None:
    text = explain_partition(Partition("m", ("A",), (), (), (), ()))
    assert text == "m on A: 0 nodes in 0 subgraphs, nothing crosses"
