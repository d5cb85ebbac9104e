"""What a policy has placed gives what the whole model gives, on random graphs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioinfer
from exhaustive import drawn
from property.test_hetero_partition import SHAPE, random_model
from unit.backends.hetero.small_graphs import new_core

DEVICES = ["REFERENCE.0", "REFERENCE.1"]


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with new_core() as made:
        yield made


@settings(max_examples=drawn(60))
@given(
    st.integers(0, 2**32),
    st.integers(1, 16),
    st.sampled_from(["PIPELINE", "LATENCY"]),
    st.booleans(),
)
def test_what_a_policy_has_placed_gives_what_the_whole_gives(
    core: aioinfer.Core, seed: int, node_count: int, policy: str, has_wishes: bool
) -> None:
    source = random.Random(seed)
    model = core.read_model(random_model(source, node_count))
    names = [node.name for node in model.graph.nodes]
    asked = source.sample(names, len(names) // 4) if has_wishes else []
    config = {
        "PARTITION_POLICY": policy,
        "AFFINITY": {name: source.choice(DEVICES) for name in asked},
        "NODE_TIMES": {
            device: {name: source.random() for name in names if source.random() < 0.9}
            for device in DEVICES
        },
    }
    chance = np.random.default_rng(seed)
    inputs = {name: chance.standard_normal(SHAPE).astype(np.float32) for name in ("p0", "p1")}
    with (
        core.load_network(model, "REFERENCE") as whole,
        core.load_network(model, f"HETERO:{','.join(DEVICES)}", config) as parts,
    ):
        expected = whole.create_infer_request().infer_sync(inputs)
        results = parts.create_infer_request().infer_sync(inputs)
        partition = parts.partition
    assert list(results) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array)
    executed = [node.name for part in partition.subgraphs for node in part.nodes]
    assert len(executed) == len(set(executed))
    originals = {
        name for part in partition.subgraphs for node in part.nodes for name in node.original_nodes
    }
    assert originals | set(partition.removed_nodes) == set(names)
    for part in partition.subgraphs:
        assert all(needed < part.index for needed in part.needs)
        for node in part.nodes:
            if node.name in asked:
                assert part.device == config["AFFINITY"][node.name]
