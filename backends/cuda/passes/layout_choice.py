"""Which nodes work on maps with channels last: the choice with the least to be turned. Pure.

Theory of operation. A convolution is always turned, and what has no rule never is. Everything else
can be either way, and is as its neighbours are. A value costs something where the node that makes
it and one that uses it differ: it has to be turned once, however many ask for that. Graph inputs
and outputs have channels first. The cheapest choice is a minimum cut between the nodes that are
turned and those that are not, so it is exact, and the same every time. A value that one elementwise
node makes for one user costs nothing to turn on the way: the node writes it in the other order. A
Transpose of the model that turns a map is on both sides: what it reads, or makes, is there already.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes.rewriting.matching import rank_of
from .channels_last_rules import TurnedNode, is_fused, rank_read, turn
from .layouts import is_map, order_of, reorder_cost, to_first, to_last
from .minimum_cut import MinimumCut

__all__ = ["choose_channels_last"]

_LAST, _FIRST = "channels last", "channels first"
_NEVER = 1 << 60
"""More than all that a model can cost."""


def choose_channels_last(graph: Graph) -> dict[Node, TurnedNode]:
    """Choose the nodes to turn, in order, with how each is written then; none without a Conv."""
    rules = {node: rule for node in graph.nodes if (rule := turn(node)) is not None}
    if not any(rule.is_wanted for rule in rules.values()):
        return {}
    cut = MinimumCut(_LAST, _FIRST)
    for value in _maps(graph):
        maker = _maker_side(value, rules)
        users = set(_user_sides(value, graph, rules))
        cost = reorder_cost(value)
        to_be_last = 0 if _is_written_turned(value) else cost
        _add(cut, value, maker, users, cost, to_be_last)
    near = cut.near_side()
    return {node: rule for node, rule in rules.items() if rule.is_wanted or node in near}


def _maps(graph: Graph) -> Iterable[Value]:
    values = [*graph.inputs, *(value for node in graph.nodes for value in node.outputs)]
    return [value for value in values if is_map(value) and not value.is_constant]


def _maker_side(value: Value, rules: Mapping[Node, TurnedNode]) -> Hashable:
    """Return on which side a value is made: a constant side, or that of the node."""
    maker = value.producer
    if maker is None:
        return _FIRST
    if order_of(maker) == to_first(rank_of(value) or 0):
        return _LAST
    rule = rules.get(maker)
    return _FIRST if rule is None or rule.keeps_output else _side(maker, rule)


def _user_sides(value: Value, graph: Graph, rules: Mapping[Node, TurnedNode]) -> Iterable[Hashable]:
    """Return on which sides a value is used."""
    if value.is_graph_output:
        yield _FIRST
    for user, index in value.uses:
        rule = rules.get(user) if user.graph is graph else None
        if user.graph is graph and order_of(user) == to_last(rank_of(value) or 0):
            yield _LAST
        elif rule is not None and _is_read_turned(rule, user, index):
            yield _side(user, rule)
        else:
            yield _FIRST


def _side(node: Node, rule: TurnedNode) -> Hashable:
    return _LAST if rule.is_wanted else node


def _is_read_turned(rule: TurnedNode, user: Node, index: int) -> bool:
    """True for a map; an operand of fewer axes is read as it is, and seen anew."""
    form = rule.inputs[index]
    is_turned = isinstance(form, str) and form == "turned"
    return is_turned and rank_read(user, index) == rank_of(user.inputs[index])


def _is_written_turned(value: Value) -> bool:
    """True if a value's node can write it in the other order for its one user."""
    maker = value.producer
    is_alone = len(value.uses) == 1 and not value.is_graph_output
    return maker is not None and is_alone and is_fused(maker)


def _add(
    cut: MinimumCut,
    value: Value,
    maker: Hashable,
    users: set[Hashable],
    to_be_first: int,
    to_be_last: int,
) -> None:
    """Make a value cost once, however many users are on the other side than its maker."""
    if len(users) == 1:
        (user,) = users
        cut.add(maker, user, to_be_first)
        cut.add(user, maker, to_be_last)
        return
    cut.add(maker, (value, _FIRST), to_be_first)
    cut.add((value, _LAST), maker, to_be_last)
    for user in users:
        cut.add((value, _FIRST), user, _NEVER)
        cut.add(user, (value, _LAST), _NEVER)
