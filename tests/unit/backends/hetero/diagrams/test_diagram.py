"""The pictures: that they show everything, are well-formed, and nothing lies upon another."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from aioinfer.backends.hetero.diagrams.diagram import affinity_svg, subgraphs_svg
from aioinfer.backends.hetero.diagrams.dot import affinity_dot, subgraphs_dot
from aioinfer.backends.hetero.partition import (
    Cut,
    NodeEdge,
    Partition,
    PartitionSubgraph,
    PlacedNode,
)
from aioinfer.runtime.graph import DType, TensorType

SVG = "{http://www.w3.org/2000/svg}"


def chain(count: int, per_subgraph: int = 1, device_count: int = 2) -> Partition:
    """Make n0 -> n1 -> ...; the pieces take turns on the devices."""
    devices = tuple(f"DEV.{index}" for index in range(device_count))
    kind = TensorType(DType.FLOAT32, (2, 3))
    subgraphs = []
    for index, start in enumerate(range(0, count, per_subgraph)):
        names = [f"n{number}" for number in range(start, min(start + per_subgraph, count))]
        subgraphs.append(
            PartitionSubgraph(
                index,
                devices[index % device_count],
                tuple(PlacedNode(name, "Relu", (name,), "because <&> so") for name in names),
                (f"n{start - 1}" if start else "p",),
                (names[-1],),
                (index - 1,) if index else (),
            )
        )
    cuts = [Cut(s.inputs[0], kind, s.index - 1, s.index, 24) for s in subgraphs[1:]]
    edges = [NodeEdge(f"n{i}", f"n{i}", f"n{i + 1}") for i in range(count - 1)]
    return Partition('odd <"name">', devices, tuple(subgraphs), tuple(cuts), tuple(edges), ())


def texts(svg: str) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    found = []
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        found.append(tuple(float(rect.get(key)) for key in ("x", "y", "width", "height")))
    return found


def test_the_affinity_diagram_shows_every_node_and_the_size_of_every_cut() -> None:
    shown = texts(affinity_svg(chain(4, per_subgraph=2)))
    assert {"n0", "n1", "n2", "n3", "n1, 24 B"} <= set(shown)
    assert "n0, 24 B" not in shown


def test_the_subgraph_diagram_shows_every_subgraph_with_its_nodes() -> None:
    shown = texts(subgraphs_svg(chain(4, per_subgraph=2)))
    assert {"0: DEV.0", "1: DEV.1", "Relu  n0", "Relu  n3", "n1, 24 B"} <= set(shown)


def test_devices_have_a_legend_and_a_colour_each() -> None:
    svg = affinity_svg(chain(6, device_count=3))
    assert {"DEV.0", "DEV.1", "DEV.2"} <= set(texts(svg))
    fills = [
        r.get("fill")
        for g in ElementTree.fromstring(svg).iter(f"{SVG}g")
        for r in g.iter(f"{SVG}rect")
    ]
    assert len(set(fills)) == 4  # three devices, and the values on their way


@pytest.mark.parametrize("draw", [affinity_svg, subgraphs_svg])
def test_a_large_model_is_drawn_as_subgraphs_only(draw) -> None:
    shown = texts(draw(chain(120, per_subgraph=30)))
    assert "30 nodes" in shown
    assert "n0" not in shown


def test_what_is_too_much_for_a_picture_says_so() -> None:
    assert any("too many to draw" in text for text in texts(subgraphs_svg(chain(600))))


@pytest.mark.parametrize("draw", [affinity_svg, subgraphs_svg])
def test_boxes_do_not_overlap_and_lie_inside_the_picture(draw) -> None:
    svg = draw(chain(40, per_subgraph=3))
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    found = boxes(svg)
    assert len(found) > 20
    for index, (x, y, w, h) in enumerate(found):
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        for other_x, other_y, other_w, other_h in found[index + 1 :]:
            is_beside = x + w <= other_x or other_x + other_w <= x
            is_above = y + h <= other_y or other_y + other_h <= y
            assert is_beside or is_above


def test_a_picture_needs_nothing_from_elsewhere() -> None:
    svg = subgraphs_svg(chain(3))
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "<script" not in svg


def test_an_empty_partition_can_be_drawn() -> None:
    empty = Partition("m", ("A",), (), (), (), ())
    for draw in (affinity_svg, subgraphs_svg):
        assert "A" in texts(draw(empty))


def test_dot_has_every_node_and_dashes_what_crosses() -> None:
    lines = [line.strip() for line in affinity_dot(chain(4, per_subgraph=2)).splitlines()]
    assert '"n0" -> "n1";' in lines
    assert '"n1" -> "n2" [style=dashed, label="n1\\n24 B"];' in lines
    assert any(line.startswith('"n3" [label="Relu\\nn3\\nDEV.1"') for line in lines)


def test_dot_clusters_hold_their_nodes() -> None:
    text = subgraphs_dot(chain(4, per_subgraph=2))
    second = text.split("subgraph cluster_1 {")[1].split("}")[0]
    assert '"n2"' in second
    assert '"n3"' in second
    assert '"n1"' not in second
    assert text.count("{") == text.count("}")
    assert text.startswith('digraph "odd <\\"name\\">" {')
