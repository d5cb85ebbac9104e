"""The kernels of a device: what can be lowered, and what refuses a node before that.

A kernel lowers a node: it asks a plan builder for operands and results, and notes what is to run.
What it cannot do it says in ``refuses``, from what is known before shapes are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import EllipsisType
from typing import Generic, NamedTuple, TypeVar

from ...errors import AioInferError, UnsupportedOpError
from ..graph import DType, Graph, Node, TensorType, Value, is_static
from ..graph.node_failure import node_failure
from ..graph.operator_families import OperatorFamilies
from ..passes.decomposing import find_decline
from ..plans.capacity import COUNTED_IN_32_BITS, find_uncountable
from ..plans.shape_tensors import ShapeTensors
from ..type_inference import Lengths, ShapeContent, find_rule, has_static_types
from ..type_inference.rules import STANDARD_DOMAINS
from .node_operands import Lowering
from .user_kernels import USER_KERNEL

__all__ = ["Kernel", "KernelRegistry", "OtherTypes", "name_in_file"]

Builder = TypeVar("Builder", bound=Lowering)
Refuse = Callable[[Node], str | None]

_NOT_MOVED = frozenset({DType.STRING, DType.COMPLEX128})
"""What no kernel takes: elements are moved as 1, 2, 4 or 8 bytes."""

_STANDARD_DOMAINS = ("", "ai.onnx")
_SOME_LENGTH = 1 << 10
"""Of an axis whose length a run brings, to ask for what a rule says of any."""


class Kernel(NamedTuple, Generic[Builder]):
    """How one operator is lowered. ``dtypes`` are those of its first input; None means any."""

    lower: Callable[[Node, Builder], None]
    dtypes: Collection[DType] | None
    refuses: Refuse | None
    constant_inputs: tuple[int, ...]


class OtherTypes(NamedTuple):
    """What lowers a node whose kernel does not take the type of its first input.

    ``kernel`` is domain and name of one that may refuse; then that of the operator says why not.
    """

    kernel: tuple[str, str]
    dtypes: Collection[DType]


class KernelRegistry(Generic[Builder]):
    """The kernels of one device by operator. Thread-safe once it is asked; nothing blocks.

    ``families`` are the operators that each module of ``package`` registers kernels for; a module
    is imported by the first question about one of its own. ``dtypes`` are what kernels that name
    none take. The kernels of ``base`` are this device's, too, where it has none of its own.
    ``others`` has nodes of other types, if the device can do anything with them.
    """

    def __init__(
        self,
        device: str,
        package: str,
        families: Mapping[str, str],
        dtypes: Collection[DType],
        base: KernelRegistry[Builder] | None = None,
        others: OtherTypes | None = None,
    ) -> None:
        self._device, self._families = device, OperatorFamilies(package, families)
        self._dtypes, self._base, self._others = dtypes, base, others
        self._registered: dict[tuple[str, str], Kernel[Builder]] = {}
        self._known = ShapeTensors(self._constant_inputs, self.find_refusal)

    def kernel(
        self,
        *op_types: str,
        domain: str = "",
        dtypes: Collection[DType] | EllipsisType | None = ...,
        refuses: Refuse | None = None,
        constant_inputs: tuple[int, ...] = (),
    ) -> Callable[[Callable[[Node, Builder], None]], Callable[[Node, Builder], None]]:
        """Register a function that lowers these operators.

        ``dtypes``: element types of the first input that it takes; None means any. ``refuses``
        gives a reason why a node cannot run, or None; it must not need shapes. ``constant_inputs``
        are indices of inputs whose content has to be known when the node is lowered.
        """
        taken = self._dtypes if isinstance(dtypes, EllipsisType) else dtypes

        def register(lower: Callable[[Node, Builder], None]) -> Callable[[Node, Builder], None]:
            for op_type in op_types:
                self._registered[domain, op_type] = Kernel(lower, taken, refuses, constant_inputs)
            return lower

        return register

    def find_kernel(self, node: Node) -> Kernel[Builder] | None:
        """Return the kernel of a node's operator, or what calls a user's; None if there is none."""
        if node.user_kernel is not None:
            return self._kernel_of(*USER_KERNEL)
        domain = "" if node.domain in _STANDARD_DOMAINS else node.domain
        found = self._kernel_of(domain, node.op_type)
        if self._others is None or found is None or found.dtypes is None or not node.inputs:
            return found
        first = node.inputs[0]  # asked of every node, many times
        kind = None if first is None else first.type
        if not isinstance(kind, TensorType) or kind.dtype in found.dtypes:
            return found
        if kind.dtype not in self._others.dtypes:
            return found
        other = self._kernel_of(*self._others.kernel)
        assert other is not None
        if other.refuses is not None and other.refuses(node) is not None:
            return found
        return other._replace(constant_inputs=found.constant_inputs)

    def is_of_other_types(self, node: Node) -> bool:
        """True for a node that is lowered by what has nodes of other types."""
        kind = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
        if self._others is None or not isinstance(kind, TensorType):
            return False
        if kind.dtype not in self._others.dtypes:
            return False
        found, other = self.find_kernel(node), self._kernel_of(*self._others.kernel)
        return found is not None and other is not None and found.lower is other.lower

    def _kernel_of(self, domain: str, op_type: str) -> Kernel[Builder] | None:
        self._families.load(domain, op_type)
        found = self._registered.get((domain, op_type))
        if found is None and self._base is not None:
            return self._base._kernel_of(domain, op_type)
        return found

    def find_unsupported(self, node: Node) -> str | None:
        """Return why the device cannot run a node, or None if it can; needs no shapes."""
        return self.find_refusal(node) or self.find_unknown(node)

    def find_refusal(self, node: Node) -> str | None:
        """Return why it cannot run a node even if all that a plan has to know is known, or None."""
        found, device = self.find_kernel(node), self._device
        if found is None:
            declined = find_decline(node)
            why = "" if declined is None else f", and it cannot be written by others: {declined}"
            return f"{device} has no kernel for {node.op}{why}"
        first = None
        for value in node.inputs:
            if value is None:
                continue
            if value.type is None and value.constant is None:
                return f"the element type of {value.name!r} is unknown{_way_to_declare(value)}"
            if first is None:
                first = value
        for value in (*node.inputs, *node.outputs):
            if value is None or value.type is None:
                continue
            if not isinstance(value.type, TensorType):
                return f"{value.name!r} is {value.type}, and {device} takes tensors only"
            if value.type.dtype in _NOT_MOVED:
                sizes = "elements of 1 to 8 bytes only"
                return f"{value.name!r} is {value.type}, and {device} takes {sizes}"
        kind = None if first is None else first.type
        dtype = kind.dtype if isinstance(kind, TensorType) else None
        if found.dtypes is not None and dtype is not None and dtype not in found.dtypes:
            known = ", ".join(sorted(known.label for known in found.dtypes))
            return f"{device} has {node.op} for {known}, not for {dtype.label}"
        if node.user_kernel is None:
            if not found.constant_inputs and _leaves_open(node):
                return _open_shape_text(node)
            reason = find_uncountable(node, COUNTED_IN_32_BITS)
            if reason is not None:
                return reason
        try:
            return found.refuses(node) if found.refuses is not None else None
        except AioInferError as error:
            error.within(node=node.name, op=node.op, device=device)
            raise
        except Exception as error:
            raise node_failure(error, node, device) from error

    def find_unknown(self, node: Node, *, of_a_piece: bool = False) -> str | None:
        """Return which input that has to be known is computed from data; see ShapeTensors."""
        return self._known.find_unknown(node, of_a_piece=of_a_piece)

    def content_sources(self, node: Node) -> list[Value]:
        """Return whose content decides what a plan has to know of a node; see ShapeTensors."""
        return self._known.sources(node)

    def shape_tensors(self, graph: Graph) -> list[str]:
        """Return the names of the graph inputs whose content a plan depends on, in order."""
        return self._known.names(graph)

    def unsupported_nodes(self, graph: Graph) -> dict[str, str]:
        """Return by node name why the device cannot run a node; those that it can are left out."""
        asked = ((node.name, self.find_unsupported(node)) for node in graph.nodes)
        return {name: reason for name, reason in asked if reason is not None}

    def refuse_unsupported(self, graph: Graph, device: str) -> None:
        """Raise UnsupportedOpError for the first node that could not be lowered whatever is given.

        The graph may be a piece of a larger one; ``device`` is the name for the error.
        """
        for node in graph.nodes:
            reason = self.find_refusal(node) or self.find_unknown(node, of_a_piece=True)
            if reason is not None:
                raise UnsupportedOpError(name_in_file(node), node.op, device, reason)

    def refuse_open_outputs(self, graph: Graph, device: str) -> None:
        """Raise UnsupportedOpError for what leaves the shape of an output open that a plan makes.

        For a graph that is specialised; if no node says why, what lowers it does.
        """
        if not has_static_types(graph.outputs):
            self.refuse_unsupported(graph, device)

    def lower(self, node: Node, builder: Builder) -> None:
        """Lower a node by its kernel; raises UnsupportedOpError where that refuses it.

        What else its kernel raises becomes an error of ours that names the node.
        """
        reason = self.find_refusal(node)
        if reason is not None:
            raise UnsupportedOpError(node.name, node.op, builder.device, reason)
        found = self.find_kernel(node)
        assert found is not None
        try:
            found.lower(node, builder)
        except AioInferError as error:
            error.within(node=node.name, op=node.op, device=builder.device)
            raise
        except Exception as error:
            raise node_failure(error, node, builder.device) from error

    @property
    def kernels(self) -> Mapping[tuple[str, str], Kernel[Builder]]:
        """All kernels, by domain and operator; for listings."""
        self._families.load_all()
        inherited = {} if self._base is None else self._base.kernels
        return {**inherited, **self._registered}

    def _constant_inputs(self, node: Node) -> tuple[int, ...]:
        found = self.find_kernel(node)
        return () if found is None else found.constant_inputs


def _way_to_declare(value: Value) -> str:
    """Return how a user can declare the type of a value, as far as that is known."""
    node = value.producer
    while node is not None and node.domain in STANDARD_DOMAINS:
        untold = (item.producer for item in node.inputs if item is not None and item.type is None)
        node = next((item for item in untold if item is not None), None)
    if node is None:
        return ""
    return f"; give the extension of {node.op} infer_types, or declare it in the model's value_info"


def _leaves_open(node: Node) -> bool:
    """True if no rule says the shape of its first result, whatever lengths its inputs have."""
    kind = node.outputs[0].type if node.outputs else None
    if not isinstance(kind, TensorType) or is_static(kind.shape):
        return False
    if _have_known_shapes(node.inputs):
        return not _tells_shape(node)  # they may have become known after its type was inferred
    if kind.shape is not None and None not in kind.shape:
        return False
    made, rule = _with_lengths(node), find_rule(node)
    if made is None or rule is None:
        return False
    contents = _AskedContent()
    try:
        told = (rule(made, contents) or [None])[0]
    except AioInferError:  # for these lengths
        return False
    if contents.is_asked:
        return False
    if _have_known_shapes(made.inputs):
        return not (isinstance(told, TensorType) and is_static(told.shape))
    return told is None  # a length that is open may be one of the vectors'


def _open_shape_text(node: Node) -> str:
    given = ", ".join(sorted(node.attributes))
    what = f"its attributes ({given}) leave" if given else "its inputs leave"
    return f"{what} open which shape {node.outputs[0].name!r} has"


def _tells_shape(node: Node) -> bool:
    rule = find_rule(node)
    told = (rule(node, ShapeContent()) if rule is not None else None) or [None]
    return isinstance(told[0], TensorType) and is_static(told[0].shape)


def _with_lengths(node: Node) -> Node | None:
    """Return a copy in which lengths that a run brings are some, but for those of vectors.

    These have to be those of some axes of others, as a bias; None where ranks are not known.
    """
    inputs: list[Value | None] = []
    for value in node.inputs:
        kind = None if value is None else value.type
        if value is None or value.constant is not None:
            inputs.append(None if value is None else Value(value.name, kind, value.constant))
        elif not isinstance(kind, TensorType) or kind.shape is None:
            return None
        elif len(kind.shape) < 2:
            inputs.append(Value(value.name, kind))
        else:
            shape = [dim if isinstance(dim, int) else _SOME_LENGTH for dim in kind.shape]
            inputs.append(Value(value.name, TensorType(kind.dtype, tuple(shape))))
    outputs = [Value(value.name) for value in node.outputs]
    return Node(node.op_type, inputs, outputs, node.attributes, name=node.name, domain=node.domain)


class _AskedContent(ShapeContent):
    """Knows constants alone, and whether a rule has asked for what another input holds."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = False

    def _note_asked(self, node: Node, index: int) -> None:
        value = node.input_at(index)
        self.is_asked |= value is not None and value.constant is None

    def of_input(self, node: Node, index: int) -> Lengths | None:
        self._note_asked(node, index)
        return super().of_input(node, index)

    def numbers(self, node: Node, index: int) -> list[float] | None:
        self._note_asked(node, index)
        return super().numbers(node, index)


def _have_known_shapes(values: Sequence[Value | None]) -> bool:
    for value in values:
        if value is None or value.constant is not None:
            continue
        if not isinstance(value.type, TensorType) or not is_static(value.type.shape):
            return False
    return True


def name_in_file(node: Node) -> str:
    """Return the name of a node, or of one of the file's that it stands for in part."""
    is_own = not node.fused_from or node.name in node.fused_from
    return node.name if is_own else node.fused_from[0]
