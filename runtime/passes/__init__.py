"""Rewrites of the graph: one pass a file, run by ``run_passes``, which checks and names them."""

from ..graph import Model
from .cleanup.common_subexpressions import CommonSubexpressions
from .cleanup.constant_folding import ConstantFolding
from .cleanup.dead_code import DeadCode
from .cleanup.identity_elimination import IdentityElimination
from .default_passes import default_passes
from .input_binding import bound_input_shapes, symbol_bindings
from .rewriting.graph_patch import GraphPatch
from .rewriting.pass_base import Pass
from .rewriting.pass_pipeline import find_bad_patch, run_passes
from .rewriting.pass_report import PassReport, PassResult
from .rewriting.patch_check import have_one_affinity
from .specialization import infer_afresh, specialize, specialize_with_report
from .support import Support, SupportMap, map_to_original

__all__ = [
    "CommonSubexpressions",
    "ConstantFolding",
    "DeadCode",
    "GraphPatch",
    "IdentityElimination",
    "Pass",
    "PassReport",
    "PassResult",
    "Support",
    "SupportMap",
    "bound_input_shapes",
    "default_passes",
    "find_bad_patch",
    "have_one_affinity",
    "map_to_original",
    "run_passes",
    "specialize",
    "specialize_with_report",
    "symbol_bindings",
]

Model.infer_types = infer_afresh
