"""The passes that every device wants, in the order in which they help each other."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..graph import Node
from .cleanup.common_subexpressions import CommonSubexpressions
from .cleanup.constant_folding import ConstantFolding
from .cleanup.dead_code import DeadCode
from .cleanup.identity_elimination import IdentityElimination
from .decomposing import Decomposing
from .rewriting.pass_base import Pass

__all__ = ["default_passes"]


def default_passes(
    keep_ops: Collection[str] = (),
    is_kept: Callable[[Node], bool] | None = None,
    *,
    decomposes: bool = True,
) -> tuple[Pass, ...]:
    """List the passes for any device; one that has more appends its own.

    ``keep_ops`` are operators whose meaning is not ONNX's, because a user brings his own kernel for
    them, or that a device wants to see; ``is_kept`` says of single nodes that they do not fold.
    ``decomposes`` is False where operators of onnxruntime's own domain have to stay.
    """
    return (
        *((Decomposing(keep_ops=keep_ops),) if decomposes else ()),
        ConstantFolding(keep_ops=keep_ops, is_kept=is_kept),
        IdentityElimination(keep_ops=keep_ops),
        CommonSubexpressions(),
        DeadCode(),
    )
