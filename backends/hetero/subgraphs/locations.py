"""Where outputs of a whole model stay, and states of its requests, told to each subgraph.

A state that one subgraph alone reads and makes is that subgraph's own: its device grows it in place
where it can. Any other is an output that stays on its device if all that read it are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ....runtime.network.states.state_pairs import problem_of_types
from .cutting import CutModel

__all__ = ["output_locations", "state_locations", "states_inside"]


def output_locations(
    cut: CutModel, wanted: Mapping[str, str], devices: Collection[str]
) -> list[dict[str, str]]:
    """List for each subgraph the outputs that stay in its device's memory: {name: 'DEVICE'}.

    Those are what all its users take there: the subgraphs that it crosses to, which are on the
    same one of ``devices``, and the caller, who ``wanted`` it there if it is an output. ``devices``
    are those whose networks share memory. Pure.
    """
    stays: list[dict[str, str]] = [{} for _ in cut.subgraphs]
    goes_elsewhere: set[str] = set()
    for link in cut.links:
        source = cut.subgraphs[link.source.subgraph].device
        if source in devices and all(
            cut.subgraphs[target.subgraph].device == source for target in link.targets
        ):
            stays[link.source.subgraph][link.value] = "DEVICE"
        else:
            goes_elsewhere.add(link.value)
    for place in cut.outputs:
        if place is None:
            continue
        name = cut.subgraphs[place.subgraph].model.outputs[place.port].name
        if wanted.get(name) != "DEVICE":
            stays[place.subgraph].pop(name, None)
        elif name not in goes_elsewhere:
            stays[place.subgraph][name] = "DEVICE"
    return stays


def state_locations(
    cut: CutModel, inputs: Sequence[str], pairs: Mapping[str, str], devices: Collection[str]
) -> dict[str, str]:
    """Name the outputs of the model that stay on a device as state: {output: 'DEVICE'}.

    Those of ``pairs``, input -> output, whose readers are all on the device that makes them, one
    of ``devices``, whose networks share memory. ``inputs`` are the model's. Pure.
    """
    makers = _makers(cut)
    stays = {}
    for name, places in zip(inputs, cut.inputs, strict=True):
        maker = makers.get(pairs.get(name, ""))
        if maker is not None and cut.subgraphs[maker].device in devices:
            readers = {cut.subgraphs[place.subgraph].device for place in places}
            if readers <= {cut.subgraphs[maker].device}:
                stays[pairs[name]] = "DEVICE"
    return stays


def states_inside(
    cut: CutModel, inputs: Sequence[str], pairs: Mapping[str, str], devices: Collection[str]
) -> list[dict[str, str]]:
    """List for each subgraph the states, input -> output, that it alone reads and makes.

    Those on one of ``devices`` whose output goes to none elsewhere. ``inputs`` are the model's.
    Pure.
    """
    makers = _makers(cut)
    found: list[dict[str, str]] = [{} for _ in cut.subgraphs]
    leaving = {
        link.value
        for link in cut.links
        for target in link.targets
        if cut.subgraphs[target.subgraph].device != cut.subgraphs[link.source.subgraph].device
    }
    for name, places in zip(inputs, cut.inputs, strict=True):
        output = pairs.get(name, "")
        maker = makers.get(output)
        if maker is None or output in leaving or [it.subgraph for it in places] != [maker]:
            continue
        piece = cut.subgraphs[maker]
        (made,) = [value for value in piece.model.outputs if value.name == output]
        if piece.device in devices and not problem_of_types(
            piece.model.inputs[places[0].port], made
        ):
            found[maker][name] = output
    return found


def _makers(cut: CutModel) -> dict[str, int]:
    """Return which subgraph makes each output of the model that one does."""
    return {
        cut.subgraphs[place.subgraph].model.outputs[place.port].name: place.subgraph
        for place in cut.outputs
        if place is not None
    }
