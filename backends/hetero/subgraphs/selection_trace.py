"""The selection as text for people, step by step, in the words of HETERO's design overview. Pure.

Rounds after the first tell only the candidates that grew anew; the others are what they were.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from .selection import Candidate, Reach, Round, bit_numbers, select_rounds

__all__ = ["trace_selection"]

N = TypeVar("N", bound=Hashable)

MOST_LISTED = 16
"""Nodes of a list that are named; of a longer one its ends are."""

_HEADS = {
    "root": "Select root",
    "merge": "Merge",
    "fail": "Failed to merge",
    "rollback": "Rollback",
}


def trace_selection(
    nodes: Iterable[N],
    edges: Iterable[tuple[N, N]],
    affinity: Mapping[N, str],
    priority: Sequence[str],
) -> str:
    """Return the steps of ``select_subgraphs``, whose arguments and errors these are, in Markdown.

    Each step says the subgraph so far, the rejected nodes and whether the global condition holds,
    with the nodes through which it fails.
    """
    given = tuple(nodes)
    order = [str(node) for node in given]
    lines: list[str] = []
    selected: dict[str, list[str]] = {}
    kept: dict[int, Candidate] = {}
    left: set[int] = set()
    device = None
    for held in select_rounds(given, edges, affinity, priority):
        if held.device != device:
            device, kept = held.device, {}
            left = {number for number, node in enumerate(given) if affinity[node] == device}
            lines += [f"Plugin {device}", ""]
        candidates = held.candidates()
        lines += _round_lines(order, held, candidates, kept, left)
        left.difference_update(held.winner.members)
        kept = {candidate.root: candidate for candidate in candidates}
        selected.setdefault(device, []).append(_listed(order, held.winner.members))
        if left:
            rest = _listed(order, sorted(left))
            lines += [f"Repeat previous steps with remaining nodes {rest}", ""]
    lines.append("The final result is:")
    lines += [f"* {name}: {', '.join(found)}" for name, found in selected.items()]
    return "\n".join(lines) + "\n"


def _round_lines(
    order: Sequence[str],
    held: Round,
    candidates: Sequence[Candidate],
    kept: Mapping[int, Candidate],
    left: set[int],
) -> list[str]:
    lines: list[str] = []
    roots = set(left)
    old = [candidate for candidate in candidates if kept.get(candidate.root) is candidate]
    if old:
        lines += [f"Subgraphs that grow as in the last round: {_subgraphs(order, old)}", ""]
    for candidate in candidates:
        if kept.get(candidate.root) is not candidate:
            lines.append(f"Possible roots: {_listed(order, sorted(roots))}")
            lines += _candidate_lines(order, candidate, held.reach)
            lines.append("")
        roots.difference_update(candidate.members)
    lines += ["Possible roots: [] no roots, **END**", ""]
    lines += [f"Subgraphs: {_subgraphs(order, candidates)}", "", "Select best subgraph:"]
    best = _listed(order, held.winner.members)
    if len(candidates) > 1:
        best = f"When there are multiple subgraphs, a larger one ({best}) is **always** selected."
    else:
        best = f"There is one subgraph, {best}, and it is selected."
    return [*lines, f"* {best}", ""]


def _candidate_lines(order: Sequence[str], candidate: Candidate, reach: Reach) -> list[str]:
    members: list[int] = []
    reached = [(0, 0)]
    rejected: list[int] = []
    lines = []
    for place, (action, number) in enumerate(candidate.steps, 1):
        if action == "rollback":
            members.pop()
            reached.pop()
        if action in ("root", "merge"):
            below, above = reached[-1]
            members.append(number)
            reached.append((below | reach.below[number], above | reach.above[number]))
        else:
            rejected.append(number)
        between = reached[-1][0] & reached[-1][1]
        lines += [
            f"{place}. {_HEADS[action]} {_listed(order, [number])}",
            f"    * Subgraph: {_listed(order, sorted(members))}",
            f"    * Rejected: {_listed(order, sorted(rejected))}",
            f"    * Global condition: {_condition(order, between, members, rejected)}",
        ]
    return [*lines, f"{len(candidate.steps) + 1}. There are no nodes to merge **end**"]


def _condition(
    order: Sequence[str], between: int, members: Iterable[int], rejected: Iterable[int]
) -> str:
    """Return through which nodes between two members the subgraph feeds, or could feed, itself."""
    nodes = set(bit_numbers(between)).difference(members)
    through = sorted(nodes.intersection(rejected))
    if through:
        return f"There are self-references throughout {_node_text(order, through)}, reject"
    if nodes:
        text = _node_text(order, sorted(nodes))
        return (
            f"There are possible self-references throughout {text} but they are not known yet, ok"
        )
    return "ok"


def _node_text(order: Sequence[str], numbers: Sequence[int]) -> str:
    return f"{'a node' if len(numbers) == 1 else 'nodes'} {_listed(order, numbers)}"


def _subgraphs(order: Sequence[str], candidates: Sequence[Candidate]) -> str:
    return ", ".join(_ends([_listed(order, candidate.members) for candidate in candidates]))


def _listed(order: Sequence[str], numbers: Sequence[int]) -> str:
    return f"[{','.join(_ends([order[number] for number in numbers]))}]"


def _ends(texts: list[str]) -> list[str]:
    if len(texts) <= MOST_LISTED:
        return texts
    half = MOST_LISTED // 2
    return [*texts[:half], f"({len(texts) - 2 * half} more)", *texts[-half:]]
