"""The stateful stream: chunk by chunk is as the whole sound, and microphones do not mix."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import aioinfer
from docs.example_files import example, run_example


@pytest.fixture(scope="module")
def stateful() -> ModuleType:
    return example("08_stateful_stream.py")


async def test_each_chunk_is_answered_as_the_whole_sound_until_there(stateful: ModuleType) -> None:
    chance = np.random.default_rng(2)
    sound = chance.standard_normal((3 * stateful.CHUNK, 1, stateful.BANDS), np.float32)
    async with aioinfer.Core() as core:
        config = {"STATE": stateful.STATE}
        network = core.load_network(stateful.keyword_spotter(), "REFERENCE", config)
        assert [port.name for port in network.inputs] == ["sound"]
        heard = await stateful.listen(network, sound)
        assert len(heard) == 3
        for count, logits in enumerate(heard, start=1):
            wanted = await stateful.whole(network, sound[: count * stateful.CHUNK])
            np.testing.assert_allclose(logits, wanted, atol=1e-4)
        without = await stateful.whole(network, sound[-stateful.CHUNK :])
        assert np.abs(heard[-1] - without).max() > 1e-2  # it does remember


def test_the_program_finds_that_both_ways_agree() -> None:
    printed = run_example("08_stateful_stream.py", "--chunks", "4")
    assert "8 chunks in" in printed
    assert printed.count("away") == 2
