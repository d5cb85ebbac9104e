"""Which nodes run together: the selection of subgraphs, a pure function.

The algorithm is the one of OpenVINO's HETERO design overview, made deterministic and safe. Each
device in turn holds rounds until none of its nodes is left. A round grows one candidate from each
root; a root is the smallest node that no candidate of the round covers yet. The largest candidate
wins, the first one on a tie, and becomes a finished subgraph.

**Growing.** Adjacency is undirected. The next neighbour is looked for from the newest member back
to the oldest; at each, successors, then predecessors, in topological order. It is merged if it is
open: of this device and in no finished subgraph. Otherwise it is rejected. While a rejected node
lies between two members (below one, above another), the newest member is taken back and rejected.
No neighbour is tried twice, so each member keeps a cursor into its neighbours that only moves on.

**Reach** is a Python integer for each node, used as a set of node numbers. With D the union of
what lies below the members and A of what lies above them, the condition fails exactly if
`D & A & rejected` is not zero. D and A lie on a stack, so that taking back is a pop.

**Contraction.** The condition looks at one subgraph alone, and two could still feed each other. So
reach is taken in the graph in which each finished subgraph is one node. A candidate that meets the
condition is convex there, contracting a convex set keeps a DAG a DAG, and by induction the graph
of the subgraphs has no cycle.

**Keeping candidates** from round to round gives what growing all of them again would give. How a
candidate grew depends on the nodes that it merged (also those that it took back), in two ways only:
that they were open, and which of its rejected nodes lie below or above each. A finished subgraph F
changes the first for members of F. It changes the second for nodes that reach some of F but not
all, or are reached by some but not by all: a node that reaches all of F had everything below F
below it already. So a candidate grows again only if it merged a member of F, or a node for which
one of its rejected nodes has come into reach. Roots follow: nodes whose coverage has changed are
visited in ascending order, and a visit changes the coverage of larger nodes only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heappop, heappush
from operator import and_, or_
from typing import Generic, TypeVar

from ....errors import DeviceError, GraphError

__all__ = [
    "Candidate",
    "Reach",
    "Round",
    "Subgraph",
    "Trace",
    "bit_numbers",
    "select_rounds",
    "select_subgraphs",
]

N = TypeVar("N", bound=Hashable)

# ("root" | "merge" | "fail" | "rollback", node) for a step, ("select", nodes) for a winner.
Trace = list[tuple[str, object]]

_Lists = list[list[int]]


@dataclass(frozen=True)
class Subgraph(Generic[N]):
    """A connected piece of the graph that runs on one device; its nodes in topological order."""

    device: str
    nodes: tuple[N, ...]


def select_subgraphs(
    nodes: Iterable[N],
    edges: Iterable[tuple[N, N]],
    affinity: Mapping[N, str],
    priority: Sequence[str],
    trace: Trace | None = None,
) -> list[Subgraph[N]]:
    """Cut a graph into connected subgraphs of one device each, in order of selection.

    nodes: in topological order. edges: (producer, consumer) pairs; the same pair may come twice.
    affinity: node to device; entries for other nodes are not looked at. priority: the devices, the
    first selects first. Every node is in exactly one subgraph and the graph of the subgraphs has
    no cycle, whatever the affinity. A trace receives every step of every round, in full, with the
    tried neighbour, or the removed member, of each; it changes nothing in the result.

    Raises GraphError for a doubled node, an edge with an unknown end and an edge against the
    order; DeviceError for a node without a device or with one that is not in priority. Pure.
    """
    order = tuple(nodes)
    subgraphs: list[Subgraph[N]] = []
    for held in select_rounds(order, edges, affinity, priority):
        selected = tuple(order[number] for number in held.winner.members)
        if trace is not None:
            for candidate in held.candidates():
                trace.extend((action, order[number]) for action, number in candidate.steps)
            trace.append(("select", selected))
        subgraphs.append(Subgraph(held.device, selected))
    return subgraphs


@dataclass(frozen=True)
class Round:
    """One round on one device, while its iterator stands at it: nodes are numbers in their order.

    ``reach`` is that of the round, in which the winner is not yet one node.
    """

    device: str
    winner: Candidate
    reach: Reach
    candidates: Callable[[], list[Candidate]]
    """All of them, ascending by their roots; the ones that nothing has changed stay the same."""


def select_rounds(
    order: Sequence[N],
    edges: Iterable[tuple[N, N]],
    affinity: Mapping[N, str],
    priority: Sequence[str],
) -> Iterator[Round]:
    """Yield the rounds of ``select_subgraphs``, whose arguments and errors these are."""
    reach = Reach(*_neighbours(order, edges))
    _check_affinity(order, affinity, priority)
    for device in priority:
        mine = [number for number, node in enumerate(order) if affinity[node] == device]
        candidates = _Candidates(reach, mine)
        while (winner := candidates.largest()) is not None:
            yield Round(device, winner, reach, candidates.in_order)
            candidates.finish(winner)


def _neighbours(order: Sequence[N], edges: Iterable[tuple[N, N]]) -> tuple[_Lists, _Lists]:
    """Number the nodes and list the successors and the predecessors of each, ascending."""
    number_of: dict[N, int] = {}
    for number, node in enumerate(order):
        if number_of.setdefault(node, number) != number:
            raise GraphError(
                f"node {node!r} is given twice, at places {number_of[node]} and {number} of the "
                "topological order (counted from 0); give every node once"
            )
    below: list[set[int]] = [set() for _ in order]
    above: list[set[int]] = [set() for _ in order]
    for producer, consumer in edges:
        for end in (producer, consumer):
            if end not in number_of:
                raise GraphError(
                    f"edge {producer!r} -> {consumer!r} names {end!r}, which is not among the "
                    f"{len(order)} nodes; add it to them, or leave out the edge if it is a "
                    "constant, a graph input or a graph output"
                )
        upper, lower = number_of[producer], number_of[consumer]
        if upper >= lower:
            raise GraphError(
                f"edge {producer!r} -> {consumer!r} runs against the order of the nodes, from "
                f"place {upper} to place {lower} (counted from 0); sort the nodes topologically "
                "first (a graph with a cycle cannot be sorted)"
            )
        below[upper].add(lower)
        above[lower].add(upper)
    return [sorted(near) for near in below], [sorted(near) for near in above]


def _check_affinity(order: Iterable[N], affinity: Mapping[N, str], priority: Sequence[str]) -> None:
    known = f"the devices of this network ({', '.join(priority)})"
    for node in order:
        if node not in affinity:
            raise DeviceError(
                f"node {node!r} has no affinity; give it one of {known}", node=str(node)
            )
        if affinity[node] not in priority:
            raise DeviceError(
                f"node {node!r} has the affinity {affinity[node]!r}, which is not among {known}; "
                "add it to them, or give the node one of them",
                node=str(node),
                device=affinity[node],
            )


class Reach:
    """What lies below and above each unfinished node, as bit masks, and its neighbours.

    The masks of finished nodes are not kept up to date, since nothing asks for them.
    """

    def __init__(self, successors: _Lists, predecessors: _Lists) -> None:
        count = len(successors)
        self.near = [low + high for low, high in zip(successors, predecessors, strict=True)]
        self.bit = [1 << number for number in range(count)]
        self.below = [0] * count
        self.above = [0] * count
        self._unfinished = (1 << count) - 1
        for number in reversed(range(count)):
            for lower in successors[number]:
                self.below[number] |= self.below[lower] | self.bit[lower]
        for number in range(count):
            for upper in predecessors[number]:
                self.above[number] |= self.above[upper] | self.bit[upper]

    def contract(self, members: Sequence[int]) -> list[tuple[int, int]]:
        """Make one node of the members; return the nodes that gain reach, each with its gain."""
        finished = reduce(or_, (self.bit[member] for member in members))
        self._unfinished &= ~finished
        belows = [self.below[member] for member in members]
        aboves = [self.above[member] for member in members]
        below, above = reduce(or_, belows), reduce(or_, aboves)
        upper = bit_numbers(above & ~reduce(and_, aboves) & self._unfinished)
        lower = bit_numbers(below & ~reduce(and_, belows) & self._unfinished)
        gains = _extend(self.below, upper, below | finished)
        return gains + _extend(self.above, lower, above | finished)


def _extend(masks: list[int], numbers: Iterable[int], reached: int) -> list[tuple[int, int]]:
    """Add the reached nodes to the masks of these numbers; return what was new to each."""
    gains = [(number, reached & ~masks[number]) for number in numbers]
    for number, gain in gains:
        masks[number] |= gain
    return gains


def bit_numbers(mask: int) -> list[int]:
    """List the bits that are set, ascending; O(distance between the first and the last)."""
    first = max((mask & -mask).bit_length() - 1, 0)
    digits = f"{mask >> first:b}"
    return [first + place for place, digit in enumerate(reversed(digits)) if digit == "1"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """What grew from a root: its members, ascending, and how that went."""

    root: int
    members: list[int]
    rejected: int
    steps: list[tuple[str, int]]

    def merged(self) -> Iterator[int]:
        """All that were a member at some time."""
        return (number for action, number in self.steps if action in ("root", "merge"))


def _grow(root: int, reach: Reach, open_nodes: set[int]) -> Candidate:
    """Grow the candidate of an open root."""
    members = [root]
    steps = [("root", root)]
    seen = {root}  # the members and the rejected
    rejected = 0
    reached = [(reach.below[root], reach.above[root], 0)]  # D, A and D & A up to each member
    cursors = [(root, iter(reach.near[root]))]
    while cursors:
        number = next((near for near in cursors[-1][1] if near not in seen), None)
        if number is None:
            cursors.pop()  # for good: what has been seen is never tried again
            continue
        seen.add(number)
        if number in open_nodes:
            members.append(number)
            steps.append(("merge", number))
            below = reached[-1][0] | reach.below[number]
            above = reached[-1][1] | reach.above[number]
            reached.append((below, above, below & above))
            cursors.append((number, iter(reach.near[number])))
        else:
            rejected |= reach.bit[number]
            steps.append(("fail", number))
        while reached[-1][2] & rejected:  # ends at the root at the latest, whose D & A is 0
            reached.pop()
            removed = members.pop()
            rejected |= reach.bit[removed]
            steps.append(("rollback", removed))
            if cursors and cursors[-1][0] == removed:
                cursors.pop()
    return Candidate(root, sorted(members), rejected, steps)


class _Candidates:
    """The candidates of the present round on one device; finishing one leads to the next round."""

    def __init__(self, reach: Reach, mine: Sequence[int]) -> None:
        self._reach = reach
        self._open = set(mine)
        self._of_root: dict[int, Candidate] = {}
        self._dependents: defaultdict[int, set[int]] = defaultdict(set)  # merged node -> roots
        self._cover: defaultdict[int, int] = defaultdict(int)  # node -> candidates, smaller roots
        self._by_size: list[tuple[int, int]] = []  # heap of (-size, root), also of dropped ones
        self._visit(list(mine), stale=set())

    def largest(self) -> Candidate | None:
        """The winner of the round, the first found on a tie; None when no node is left."""
        while self._by_size:
            negative_size, root = self._by_size[0]
            candidate = self._of_root.get(root)
            if candidate is not None and len(candidate.members) == -negative_size:
                return candidate
            heappop(self._by_size)
        return None

    def in_order(self) -> list[Candidate]:
        """List those of the round, ascending by their roots."""
        return [self._of_root[root] for root in sorted(self._of_root)]

    def finish(self, winner: Candidate) -> None:
        """Contract the winner and grow again the candidates that this changes."""
        gains = self._reach.contract(winner.members)
        self._open.difference_update(winner.members)
        stale: set[int] = set()
        for number in winner.members:
            stale |= self._dependents[number]
        for number, gain in gains:
            for root in self._dependents[number]:
                if gain & self._of_root[root].rejected:
                    stale.add(root)
        self._visit(list(stale), stale)

    def _visit(self, queue: list[int], stale: set[int]) -> None:
        """Settle for the queued nodes, ascending, which is a root and what grows from it."""
        heapify(queue)
        while queue:
            number = heappop(queue)
            is_root = number in self._open and not self._cover[number]
            candidate = self._of_root.get(number)
            if candidate is not None and (number in stale or not is_root):
                stale.discard(number)
                self._drop(candidate, queue)
                candidate = None
            if is_root and candidate is None:
                self._add(_grow(number, self._reach, self._open), queue)

    def _add(self, candidate: Candidate, queue: list[int]) -> None:
        root = candidate.root
        self._of_root[root] = candidate
        heappush(self._by_size, (-len(candidate.members), root))
        for number in candidate.merged():
            self._dependents[number].add(root)
        for number in candidate.members:
            if number > root:
                self._cover[number] += 1
                if number in self._of_root:
                    heappush(queue, number)  # covered, so no root any more

    def _drop(self, candidate: Candidate, queue: list[int]) -> None:
        root = candidate.root
        del self._of_root[root]
        for number in candidate.merged():
            self._dependents[number].discard(root)
        for number in candidate.members:
            if number > root:
                self._cover[number] -= 1
                if not self._cover[number]:
                    heappush(queue, number)  # perhaps a root now
