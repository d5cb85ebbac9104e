"""The build configuration names every package and only classes that are there."""

import ast

from architecture.tree import installed_files, module_files, pyproject


def test_every_package_of_the_tree_is_listed_in_pyproject() -> None:
    listed = set(pyproject()["tool"]["setuptools"]["packages"])
    files = [path for path in installed_files() if path.endswith(".py")]
    in_tree = {path.rpartition("/")[0].replace("/", ".") for path in files}
    unlisted = sorted(in_tree - listed)
    assert not unlisted, f"works here and is missing from the wheel: {unlisted}"
    assert sorted(listed - in_tree) == []


def test_every_package_of_the_tree_has_an_init_file() -> None:
    paths = set(installed_files())
    folders = {path.rpartition("/")[0] for path in paths if path.endswith(".py")}
    assert sorted(folder for folder in folders if f"{folder}/__init__.py" not in paths) == []


def test_every_entry_point_names_what_is_there() -> None:
    project = pyproject()["project"]
    targets = dict(project["scripts"])
    for group in ("aioinfer.backends", "aioinfer.commands"):
        targets |= project["entry-points"][group]
    modules = module_files()
    for name, target in targets.items():
        module, _, attribute = target.partition(":")
        assert module in modules, f"{name}: no module {module}"
        tree = ast.parse(modules[module].read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if hasattr(node, "name")}
        assert attribute in defined, f"{name}: {module} defines no {attribute}"
