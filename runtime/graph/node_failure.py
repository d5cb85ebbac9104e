"""What is raised where a node, a plan or a run fails by something that is no error of ours."""

from __future__ import annotations

from ...errors import AioInferError, DeviceError, GraphError, ModelError
from ...executors import find_shortage
from . import Node, Value

__all__ = ["failure_at", "node_failure", "run_failure"]


def node_failure(error: Exception, node: Node, device: str) -> AioInferError:
    """Make the error for a node that could not be compiled: its name, what it is given, the cause.

    DeviceError for want of a resource, else GraphError: what passes the earlier checks a
    kernel has to take, or to refuse. For what is no error of ours yet.
    """
    given = ", ".join(map(_text, node.inputs))
    what = f"{node.op} (node {node.name!r}) on ({given}) for {device}"
    found = failure_at(error, what)
    found.within(node=node.name, op=node.op, device=device)
    return found


def failure_at(error: Exception, what: str) -> AioInferError:
    """Make the error for something that could not be compiled; see ``node_failure``."""
    doing = f"compiling {what}"
    if isinstance(error, RecursionError):
        return ModelError(f"{doing}: the model is nested, or its nodes follow each other, too deep")
    return find_shortage(error, doing) or GraphError(
        f"{doing} failed with {type(error).__name__}: {str(error) or 'no reason given'}; its "
        f"attributes and inputs do not fit each other, or else this is a mistake of aioinfer"
    )


def run_failure(error: Exception, what: str) -> AioInferError:
    """Make the error for a run that fails otherwise than in a node."""
    doing = f"running {what}"
    return find_shortage(error, doing) or DeviceError(
        f"{doing} failed with {type(error).__name__}: {str(error) or 'no reason given'}; this is a "
        f"mistake of aioinfer, please report it"
    )


def _text(value: Value | None) -> str:
    return "none" if value is None else f"{value.name!r} {value.type or 'of unknown type'}"
