"""One run over linked networks, which owns what crosses between them.

A stage of the outer run binds the boundary tensors of one sub-run and starts it with the token of
the values that it takes. Nothing is copied and no thread waits: a device gets its sub-run while the
bytes may still be on their way. Only a value of which nothing is there yet (its shape depends on
data) is waited for. Results stay with the outer run until it has ended, so a sub-network's slot is
free as soon as they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.sub_request import SubRequestExecutor
from ...runtime.runs.bindings import Bindings, RunProfile
from ...runtime.runs.stage import Stage, Stop
from ...runtime.tensors.device_array import read_by
from ...runtime.tensors.kept_array import KeptArray
from .crossing import Crossing

__all__ = ["LinkedRun", "SubNetwork"]


class SubNetwork(NamedTuple):
    """The network of one subgraph and where its inputs come from, by name."""

    network: ExecutableNetwork
    outer_inputs: tuple[str, ...]
    crossings: tuple[Crossing, ...]
    """The inputs that other subgraphs make."""
    outputs: tuple[str, ...]


class LinkedRun:
    """The tensors of one outer run: what it was given, and what its sub-runs have made.

    Belongs to a slot, and is used again: ``take`` begins a run, ``release`` ends it.
    """

    stop: Stop
    _outer: Bindings

    def __init__(self, subnetworks: Sequence[SubNetwork]) -> None:
        self._subnetworks = subnetworks
        self._bindings: list[Bindings | None] = [None] * len(subnetworks)

    def take(self, outer: Bindings, stop: Stop) -> None:
        """Begin with what a run was given."""
        self._outer, self.stop = outer, stop

    def release(self) -> None:
        """Forget the run that has ended."""
        if hasattr(self, "_outer"):
            del self._outer, self.stop
        self._bindings = [None] * len(self._subnetworks)

    def stages(self) -> list[Stage]:
        """Make a stage for each subgraph, in their order."""
        stages = []
        for index, subnetwork in enumerate(self._subnetworks):
            executor = SubRequestExecutor(
                f"subgraph{index}",
                subnetwork.network,
                partial(self.bind, index),
                lambda: self.stop,
                partial(self.can_bind, index),
            )
            stages.append(Stage(executor.name, executor, executor.bind))
        return stages

    def can_bind(self, index: int) -> bool:
        """True if every value that the sub-run takes is there, perhaps without its bytes."""
        return all(
            crossing.name in self.made_by(crossing.source)
            for crossing in self._subnetworks[index].crossings
        )

    def made_by(self, index: int) -> dict[str, Any]:
        """Return what a sub-run has made so far, by name."""
        bindings = self._bindings[index]
        return {} if bindings is None else bindings.results

    def bind(self, index: int) -> Bindings:
        """Make the bindings of a sub-run; to its readers they are the outer run.

        Raises TensorError for a value that is not what the sub-network was compiled for.
        """
        subnetwork, outer = self._subnetworks[index], self._outer
        inputs = {name: self._own(subnetwork, name) for name in subnetwork.outer_inputs}
        for crossing in subnetwork.crossings:
            value = self.made_by(crossing.source)[crossing.name]
            crossing.check(value)
            if isinstance(value, KeptArray):
                adopt = subnetwork.network.adopt_array
                value = read_by(adopt, value, f"value {crossing.name!r}")
            inputs[crossing.name] = value
        bindings = self._bindings[index] = Bindings(
            inputs,
            outer.ticket,
            outer.run_id,
            {name: outer.bound[name] for name in subnetwork.outputs if name in outer.bound},
            {},
            RunProfile() if subnetwork.network.has_perf_count else None,
            outer.arrived_ns,
            has_own_states=outer.has_own_states,
        )
        return bindings

    def _own(self, subnetwork: SubNetwork, name: str) -> Any:
        """Return what the outer run was given; what a device keeps is read there if it can be."""
        value, network = self._outer.inputs[name], subnetwork.network
        if not isinstance(value, KeptArray):
            return value
        adopt = None if name in network.host_inputs else network.adopt_array
        return read_by(adopt, value, f"input {name!r}")

    def profile_of(self, index: int) -> RunProfile:
        """Return the node times and the copies that a sub-run has noted."""
        bindings = self._bindings[index]
        profile = None if bindings is None else bindings.profile
        return RunProfile() if profile is None else profile
