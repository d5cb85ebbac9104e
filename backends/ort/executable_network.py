"""A model on ONNXRUNTIME: one session, run on the device's streams.

Outputs that stay, as OUTPUT_LOCATION asks and states do, are onnxruntime's own values: they go from
run to run by IO binding, and nothing copies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import TensorError
from ...executors import NOW, Lane, Ready, StreamsConfig
from ...runtime.devices.plugin import CoreHandle
from ...runtime.graph import Graph, Model, copy_graph
from ...runtime.graph.stand_ins import release_constants
from ...runtime.network.executable_network import ExecutableNetwork, Slot
from ...runtime.network.states.state_pairs import find_pairs
from ...runtime.properties.properties import Configuration, slot_count
from ...runtime.runs.stage import Stage
from ...runtime.tensors.device_array import memory_place
from ...runtime.tensors.kept_array import KeptArray
from ...runtime.tensors.tensor import ports_of
from .kept_value import OrtKept
from .open_ranks import OpenRanks
from .session import Session, Terminator
from .session_failure import explain_run, original_names

__all__ = ["OrtNetwork"]


class OrtNetwork(ExecutableNetwork):
    """A model compiled by onnxruntime for one execution provider, for all shapes at once."""

    def __init__(
        self,
        model: Model,
        session: Session,
        streams: StreamsConfig,
        config: Configuration,
        core: CoreHandle,
    ) -> None:
        super().__init__(
            name=model.name,
            device=streams.name,
            inputs=ports_of(model.inputs),
            outputs=ports_of(model.outputs),
            config=config,
            core=core,
            adopt_array=partial(_adopt, session),
        )
        self._model, self._graph, self._session = model, model.graph, session
        self.open_ranks = OpenRanks(model, model.name, streams.name)
        self.kept_outputs |= {*find_pairs(model, config).values()}
        self.bound_outputs = self.kept_outputs if session.can_bind else frozenset()
        """The outputs that stay onnxruntime's own."""
        self._output_names = [port.name for port in self.outputs]
        self._origins = original_names(model.graph.nodes)
        self.is_single_threaded = session.is_single_threaded and not _has_bodies(model.graph)
        """True if a run computes on the calling thread alone, in a time that its shapes decide."""
        self._streams = core.executors.acquire(streams)
        # One run computes on each stream, and one more is bound and ready to follow it.
        slots = slot_count(config, 2 * streams.stream_count)
        self._provide_slots([_OrtSlot(self) for _ in range(slots)])

    @property
    def session(self) -> Any:
        """The onnxruntime.InferenceSession, for what aioinfer has no words for; do not close it.

        None once the network is closed.
        """
        return self._session.raw

    def runtime_graph(self) -> Graph:
        """Return a copy of the graph that onnxruntime was given; it fuses further by itself."""
        return copy_graph(self._graph)

    def _model_to_export(self) -> Model | None:
        return self._model

    def _release_device(self) -> None:
        self._core.executors.release(self._streams)
        self._session.close()
        release_constants(self._graph)


def _adopt(session: Session, given: Any, what: str) -> OrtKept | None:
    """Take what a session has kept as it is; see AdoptArray."""
    if isinstance(given, OrtKept) and session.can_bind and given.place == session.place:
        return given
    if isinstance(given, KeptArray):
        return None
    raise TensorError(
        f"{what} lies in the memory of {memory_place(given)}, and the host's is wanted; give a "
        f"copy there, as .get() or .cpu() make"
    )


def _has_bodies(graph: Graph) -> bool:
    """True if how often a node computes is decided by data: loops and branches."""
    return any(node.bodies() for node in graph.nodes)


class _OrtSlot(Slot):
    """One run of the session."""

    def __init__(self, network: OrtNetwork) -> None:
        self._network, self._run = network, network._session.run
        self._output_names = network._output_names
        self._terminator = Terminator()
        self._terminate = self._terminator.terminate
        self.stages = (Stage("compute", network._streams, self._compute),)
        self.may_run_inline = network.is_single_threaded

    def _compute(self, _lane: Lane) -> Ready:
        bindings, stop, terminate = self.bindings, self.stop, self._terminate
        if self._network.open_ranks:
            self._network.open_ranks.check(bindings.inputs)
        stop.when_set(terminate)
        try:
            results = self._results()
        except Exception as error:
            stop.raise_if_set()
            network = self._network
            raise explain_run(error, network.device, network.name, network._origins) from error
        finally:
            if not stop.forget(terminate):  # it is being called, perhaps only now
                self._terminator = Terminator()
                self._terminate = self._terminator.terminate
        for name, result in zip(self._output_names, results, strict=True):
            if isinstance(result, OrtKept) and name in bindings.bound:
                result = result.host()
            size_bytes = bindings.deliver(name, result)
            if size_bytes:
                recorder = self._network.admission.recorder
                bindings.note_copied(recorder, "compute", "host", size_bytes)
        return NOW

    def _results(self) -> Sequence[Any]:
        network, inputs = self._network, self.bindings.inputs
        if network.bound_outputs or any(type(given) is OrtKept for given in inputs.values()):
            session = network._session
            noted = self.bindings.later_download(network.admission.recorder, "compute")
            keep = partial(OrtKept, network.device, session.place, noted)
            return session.run_bound(inputs, network.bound_outputs, keep, self._terminator)
        return self._run(inputs, self._terminator)
