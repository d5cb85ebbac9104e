"""Who may import whom: the order of the parts as a table, and a pure check of sources against it.

A source is never imported, only parsed. Modules have the names under which they are installed, so
the folder runtime/graph/ is aioinfer.runtime.graph here. Imports under TYPE_CHECKING and inside
functions count for the order of the parts, but not for what loading a module costs.
"""

import ast
import functools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PACKAGE = "aioinfer"
PART_NAMES = ("backends", "executors", "runtime", "serving")
BEYOND = "<beyond the package>"
SHARED = "aioinfer.backends.accelerator"  # what devices with queues of their own share

# A room may import itself and what stands on an earlier line; rooms on one line are strangers.
ORDER: tuple[tuple[str, ...], ...] = (
    ("aioinfer.errors",),
    ("aioinfer.executors",),
    ("aioinfer.runtime.graph", "aioinfer.runtime.properties", "aioinfer.runtime.loops"),
    ("aioinfer.runtime.decompositions",),
    (
        "aioinfer.runtime.tensors",
        "aioinfer.runtime.type_inference",
        "aioinfer.runtime.blobs",
        "aioinfer.runtime.costs",
    ),
    ("aioinfer.runtime.onnx_writer",),
    ("aioinfer.runtime.onnx_native",),
    ("aioinfer.runtime.operators",),
    ("aioinfer.runtime.passes", "aioinfer.runtime.onnx_reader"),
    ("aioinfer.runtime.tracing", "aioinfer.runtime.preprocessing"),
    ("aioinfer.runtime.runs",),
    ("aioinfer.runtime.plans",),
    ("aioinfer.runtime.network", "aioinfer.runtime.lowering"),
    ("aioinfer.runtime.interpretation",),
    ("aioinfer.runtime.devices",),
    ("aioinfer.runtime.testing", "aioinfer.runtime"),
    (SHARED,),
    ("aioinfer.backends", "aioinfer.backends.*", "aioinfer.serving", "aioinfer.cli"),
    ("aioinfer",),
)
TOP = len(ORDER) - 1
USERS = {  # what stands above a room's own line and may be imported there all the same
    "aioinfer.cli": ("aioinfer",),
    "aioinfer.serving": ("aioinfer",),
}
PROGRAM = "aioinfer.__main__"

PROGRAMS = ("aioinfer.runtime.onnx_native.program", "aioinfer.backends.cuda.plan_worker_program")
"""Modules that are the program of a process of their own, of one thread."""
OF_PROGRAMS = ("aioinfer.backends.cuda.libraries.cudnn_builder",)
"""Modules that such a program loads, too, without the rest: who calls them in ours is the guard."""
LOOPS = frozenset({"asyncio", "contextvars", "outcome", "trio"})

# Loading `aioinfer`, or a backend's plugin.py, may load these and the standard library only.
LIGHT = frozenset({"ml_dtypes", "numpy"})


@dataclass(frozen=True)
class Source:
    """One module of the package: its dotted name, its text, and whether it is an __init__.py."""

    module: str
    text: str
    is_package: bool = False


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name. is_eager: it happens when the importer is loaded."""

    module: str
    line: int
    is_relative: bool
    is_eager: bool


def room_of(module: str) -> str:
    """Name the room a module of the package belongs to; the front door's is `aioinfer` itself."""
    parts = module.split(".")
    if parts[:2] == [PACKAGE, "backends"] and len(parts) > 2:
        return ".".join(parts[:3])
    rooms = [room for line in ORDER[:TOP] for room in line]
    inside = [room for room in rooms if module == room or module.startswith(f"{room}.")]
    return max(inside, key=len, default=PACKAGE)


def rank_of(room: str) -> int:
    """Give the line of ORDER on which a room stands."""
    is_device = room.startswith("aioinfer.backends.") and room != SHARED
    pattern = "aioinfer.backends.*" if is_device else room
    return next(rank for rank, line in enumerate(ORDER) if pattern in line)


def refusal(importer: str, imported: str) -> str | None:
    """Say why one module of the package may not import another, or None if it may."""
    own, other = room_of(importer), room_of(imported)
    if own == other or other in USERS.get(own, ()):
        return None
    if importer == PROGRAM and other == "aioinfer.cli":
        return None
    if other == SHARED and not own.startswith("aioinfer.backends."):
        return f"only backends import {SHARED}: reach a device through the Core handle"
    if other.startswith("aioinfer.backends") and other != SHARED:
        return "nothing imports a backend: reach a device through the Core handle"
    if rank_of(other) < min(rank_of(own), TOP - 1):
        return None
    return f"{own} may import only what stands before it in the order of the parts"


@functools.cache
def imports_of(source: Source, known: frozenset[str]) -> tuple[Import, ...]:
    """List what a module imports. known: all modules of the package, to tell them from names."""
    return tuple(_walk(ast.parse(source.text), source, known, True))


def _walk(node: ast.AST, source: Source, known: frozenset[str], eager: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, False, eager)
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node.module or "", node.level, source)
        targets = [f"{base}.{alias.name}" for alias in node.names]
        for target in dict.fromkeys(name if name in known else base for name in targets):
            yield Import(target, node.lineno, node.level > 0, eager)
    elif isinstance(node, ast.Call) and (name := _imported_by_call(node)):
        level = len(name) - len(name.lstrip("."))
        target = _absolute(name.lstrip("."), level, source)
        yield Import(target, node.lineno, level > 0, eager)
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.body:
            yield from _walk(child, source, known, False)
        for child in node.orelse:
            yield from _walk(child, source, known, eager)
        return
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, source, known, eager and not is_function)


def _absolute(module: str, level: int, source: Source) -> str:
    if level == 0:
        return module
    up = level - 1 if source.is_package else level
    parts = source.module.split(".")
    base = parts[: len(parts) - up] if up < len(parts) else [BEYOND]
    return ".".join([*base, module] if module else base)


def _imported_by_call(call: ast.Call) -> str | None:
    if not _calls_import(call) or not call.args:
        return None
    first = call.args[0]
    is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return first.value if is_text else None


def _calls_import(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def broken_order(sources: Mapping[str, Source]) -> list[str]:
    """List every import that breaks the order of the parts, or is not relative inside the package.

    sources: by the path to print. Each line of the answer reads `path:line: what, and why not`.
    """
    known = frozenset(source.module for source in sources.values())
    found = []
    for path, source in sources.items():
        for item in imports_of(source, known):
            top = item.module.split(".")[0]
            why = None
            if top in PART_NAMES and not item.is_relative:
                why = "a part is never a top-level name; import it relatively"
            elif top == BEYOND:
                why = "that many dots lead out of the package"
            elif top == PACKAGE and not item.is_relative:
                why = "inside the package imports are relative"
            elif top == PACKAGE:
                why = refusal(source.module, item.module)
            if why:
                found.append(f"{path}:{item.line}: {source.module} imports {item.module}: {why}")
    return found


def circles(sources: Mapping[str, Source]) -> list[str]:
    """List the modules that import each other in a circle, one line for each such group.

    Imports for types only and inside functions count: a reader meets them all the same. A package
    and what it gathers from the modules inside it are no circle.
    """
    known = frozenset(source.module for source in sources.values())
    follows: dict[str, set[str]] = {}
    for source in sources.values():
        targets = {item.module for item in imports_of(source, known)} & known
        follows[source.module] = {
            target for target in targets if not source.module.startswith(f"{target}.")
        }
    groups = _strongly_connected(follows)
    return [" <-> ".join(sorted(group)) for group in groups if len(group) > 1]


def _strongly_connected(follows: Mapping[str, set[str]]) -> list[set[str]]:
    """Group what reaches each other (Kosaraju's two walks)."""
    order: list[str] = []
    _walk_all(sorted(follows), follows, order)
    back: dict[str, set[str]] = {name: set() for name in follows}
    for name, targets in follows.items():
        for target in targets:
            back[target].add(name)
    groups, seen = [], set[str]()
    for name in reversed(order):
        if name not in seen:
            group: list[str] = []
            _walk_from(name, back, seen, group)
            groups.append(set(group))
    return groups


def _walk_all(names: list[str], follows: Mapping[str, set[str]], order: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name not in seen:
            _walk_from(name, follows, seen, order)


def _walk_from(
    start: str, follows: Mapping[str, set[str]], seen: set[str], order: list[str]
) -> None:
    """Walk in depth; ``order`` gets each name when all that follows it has been walked."""
    seen.add(start)
    stack = [(start, iter(sorted(follows[start])))]
    while stack:
        name, left = stack[-1]
        following = next((item for item in left if item not in seen), None)
        if following is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(sorted(follows[following]))))


def is_heavy(module: str) -> bool:
    """Tell whether an imported module is a third party that must be loaded lazily."""
    top = module.split(".")[0]
    return top not in sys.stdlib_module_names and top not in {*LIGHT, PACKAGE, BEYOND}


def eager_heavy(sources: Mapping[str, Source], root: str) -> list[str]:
    """List the heavy third parties that loading the module `root` would load, and from where."""
    by_name = {source.module: (path, source) for path, source in sources.items()}
    known = frozenset(by_name)
    found, seen, waiting = [], set(), [root]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        waiting.extend(name[:i] for i, letter in enumerate(name) if letter == ".")
        path, source = by_name[name]
        for item in imports_of(source, known):
            if item.is_eager and is_heavy(item.module):
                found.append(f"{path}:{item.line}: loading {root} loads {item.module}")
            elif item.is_eager:
                waiting.append(item.module)
    return sorted(found)


def scattered_heavy(sources: Mapping[str, Source]) -> list[str]:
    """List the backends whose heavy third parties are imported in more than one file.

    What a driver can do without may be bound in a package ``libraries``, one library a file.
    """
    known = frozenset(source.module for source in sources.values())
    files: dict[str, list[str]] = {}
    for path, source in sources.items():
        room = room_of(source.module)
        is_backend = room.startswith("aioinfer.backends.")
        if not is_backend or source.module.startswith(f"{room}.libraries."):
            continue
        if any(is_heavy(item.module) for item in imports_of(source, known)):
            files.setdefault(room, []).append(path)
    return [
        f"{room}: third parties are imported in {', '.join(paths)}; keep them in one file, or "
        "in libraries/"
        for room, paths in files.items()
        if len(paths) > 1
    ]


def unguarded(sources: Mapping[str, Source]) -> list[str]:
    """List imports in functions of the runtime that no fork waits for: beside ``late_imports``.

    A loop that a function runs on has been imported by whoever runs it.
    """
    found = []
    for path, source in sources.items():
        parts = source.module.split(".")
        is_runtime = len(parts) > 1 and parts[1] in ("executors", "runtime", "backends")
        is_apart = source.module in (*PROGRAMS, *OF_PROGRAMS) or parts[1:3] == [
            "runtime",
            "testing",
        ]
        if is_runtime and not is_apart:
            lines = sorted(_unguarded_lines(ast.parse(source.text), False))
            found += [f"{path}:{line}: write it below `with late_imports:`" for line in lines]
    return found


def _unguarded_lines(node: ast.AST, in_function: bool) -> Iterator[int]:
    if isinstance(node, ast.With) and any(
        ast.unparse(item.context_expr).lstrip("_") == "late_imports" for item in node.items
    ):
        return
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Call) and in_function:
        names = [""]
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module)]
        is_import = not isinstance(node, ast.Call) or _calls_import(node)
        if is_import and not {name.split(".")[0] for name in names} <= LOOPS:
            yield node.lineno
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _unguarded_lines(child, in_function or is_function)


def starts_with_errors(source: Source) -> bool:
    """Tell whether a part's __init__.py first imports from ..errors.

    Then `import executors` from the repository's root fails instead of loading a second set of
    classes. A docstring and `from __future__` may come before it.
    """
    statements = [
        statement
        for statement in ast.parse(source.text).body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")
    ]
    first = statements[0] if statements else None
    return isinstance(first, ast.ImportFrom) and (first.level, first.module) == (2, "errors")
