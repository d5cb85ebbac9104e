"""A model on ONNXRUNTIME: one session, run on the device's streams."""

from __future__ import annotations

from typing import Any

from ...executors import NOW, Lane, Ready, StreamsConfig
from ...runtime.devices.plugin import CoreHandle
from ...runtime.graph import Graph, Model, copy_graph
from ...runtime.graph.stand_ins import release_constants
from ...runtime.network.executable_network import ExecutableNetwork, Slot
from ...runtime.properties.properties import Configuration, slot_count
from ...runtime.runs.stage import Stage
from ...runtime.tensors.tensor import ports_of
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
        )
        self._graph, self._session = model.graph, session
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

    def _release_device(self) -> None:
        self._core.executors.release(self._streams)
        self._session.close()
        release_constants(self._graph)


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
        stop.when_set(terminate)
        try:
            results = self._run(bindings.inputs, self._terminator)
        except Exception as error:
            stop.raise_if_set()
            network = self._network
            raise explain_run(error, network.device, network.name, network._origins) from error
        finally:
            if not stop.forget(terminate):  # it is being called, perhaps only now
                self._terminator = Terminator()
                self._terminate = self._terminator.terminate
        for name, result in zip(self._output_names, results, strict=True):
            size_bytes = bindings.deliver(name, result)
            if size_bytes:
                recorder = self._network.admission.recorder
                bindings.note_copied(recorder, "compute", "host", size_bytes)
        return NOW
