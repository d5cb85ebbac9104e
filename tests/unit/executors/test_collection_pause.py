"""Full garbage collections wait while networks are loaded."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

import aioinfer
from aioinfer.errors import ModelError
from aioinfer.executors import full_collections_paused
from aioinfer.runtime.devices import network_loader
from unit.runtime.models import tiny_model

MINE = (600, 7, 5)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*MINE)
    yield
    gc.set_threshold(*before)


def test_only_the_oldest_generation_waits_until_the_last_is_over() -> None:
    with full_collections_paused():
        with full_collections_paused():
            assert gc.get_threshold()[:2] == MINE[:2]
            assert gc.get_threshold()[2] > 1_000_000
        assert gc.get_threshold()[2] > 1_000_000
    assert gc.get_threshold() == MINE


def test_they_come_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="planted"), full_collections_paused():
        raise ValueError("planted")
    assert gc.get_threshold() == MINE


def test_what_other_code_has_set_meanwhile_stays() -> None:
    with full_collections_paused():
        gc.set_threshold(500, 5, 5)
    assert gc.get_threshold() == (500, 5, 5)


def test_a_load_pauses_them_and_resumes_whatever_becomes_of_it(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    read = network_loader.read_source

    def noted(source: object, *, is_mapped: bool) -> object:
        seen.append(gc.get_threshold()[2])
        return read(source, is_mapped=is_mapped)  # type: ignore[arg-type]

    monkeypatch.setattr(network_loader, "read_source", noted)
    core.load_network(tiny_model(), "REFERENCE").close()
    with pytest.raises(ModelError):
        core.load_network(b"no model", "REFERENCE")
    assert len(seen) == 2
    assert min(seen) > 1_000_000
    assert gc.get_threshold() == MINE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_meanwhile_collects_again() -> None:
    with full_collections_paused():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.get_threshold() == MINE else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert gc.get_threshold()[2] > 1_000_000
