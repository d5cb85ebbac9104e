"""OUTPUT_LOCATION of a whole model, as that of each of its subgraphs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .cutting import CutModel

__all__ = ["output_locations"]


def output_locations(
    cut: CutModel, wanted: Mapping[str, str], devices: Collection[str]
) -> list[dict[str, str]]:
    """List for each subgraph the outputs that stay in its device's memory: {name: 'DEVICE'}.

    Those are what all who take it take there: the subgraphs that it crosses to, which are on the
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
