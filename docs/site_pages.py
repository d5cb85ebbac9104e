"""What mkdocs needs to make the site: the generated pages, the order of all, links out of docs/.

The front page is README.md. The API is read from docstrings. Properties and metrics are what
``aioinfer properties`` lists; CUDA is on the tests' driver, so that its page needs no GPU.
"""

from __future__ import annotations

import html
import posixpath
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "build" / "site-sources"
sys.path.insert(0, str(ROOT / "tests"))

import aioinfer.executors  # noqa: E402
from aioinfer.cli.properties import DeviceKeys, device_keys  # noqa: E402
from unit.backends.accelerator.fake_driver import FakeDriver  # noqa: E402
from unit.backends.cuda.planning import GPU, cuda_core  # noqa: E402

NAVIGATION = {
    "Use": (
        "service.md",
        "serving.md",
        "ray.md",
        "examples.md",
        "preprocessing.md",
        "state.md",
        "choosing-a-device.md",
        "quantization.md",
        "batching.md",
        "multi.md",
        "hetero.md",
        "auto.md",
        "reload.md",
        "blob-format.md",
        "containers.md",
        "python-versions.md",
        "callbacks.md",
        "observing.md",
        "errors.md",
    ),
    "Devices": ("cpu.md", "cuda.md", "opencl.md"),
    "Properties and metrics": ("reference/properties/",),
    "Reference": ("reference/",),
    "Extend": ("add-a-device.md", "add-an-op.md"),
    "How it is made": ("architecture.md", "glossary.md", "/", "decisions/index.md"),
}
"""Pages by name, or the rest of a folder; '/' is docs/ itself."""

API = {
    "reference/api.md": ("API", aioinfer),
    "reference/errors.md": ("Errors", aioinfer.errors),
    "reference/executors.md": ("Executors", aioinfer.executors),
    "reference/images.md": ("Pictures", aioinfer.images),
    "reference/plugins.md": ("For authors of devices", aioinfer.plugins),
    "reference/preprocess.md": ("Pre- and postprocessing", aioinfer.preprocess),
    "reference/testing.md": ("Test kit", aioinfer.testing),
}
FIRST = ("Core", "Model", "ExecutableNetwork", "InferRequest", "Tensor", "Extension", "Plugin")

OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)*(?:examples|benchmarks)/[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and put all in order."""
    pages = {"index.md": (ROOT / "README.md").read_text(encoding="utf-8").replace("docs/", "")}
    pages |= {path: api_page(title, module) for path, (title, module) in API.items()}
    with cuda_core(FakeDriver(GPU)) as core:
        for keys in [device_keys(core, name) for name in core.plugin_names]:
            pages[f"reference/properties/{keys.device}.md"] = properties_page(keys)
    pages["decisions/index.md"] = decisions_page()
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    config.nav = navigation(file.src_uri for file in files.documentation_pages())
    return files


def on_startup(**_: Any) -> None:
    """Copy the parts to where they are after installation; mkdocstrings follows no links."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, folder in project["tool"]["setuptools"]["package-dir"].items():
        target = SOURCES.joinpath(*name.split("."))
        shutil.copytree(ROOT / folder, target, ignore=shutil.ignore_patterns("*.so", "__pycache__"))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave only the words of links to what is not in the site; a folder's page is its index."""
    return OUTSIDE.sub(r"\1", markdown.replace("](decisions/)", "](decisions/index.md)"))


def navigation(paths: Iterable[str]) -> list[Any]:
    """Put the pages under headings; those of decisions are behind their index. Pure."""
    left = sorted(paths)
    left.remove("index.md")
    sections = []
    for title, wanted in NAVIGATION.items():
        pages: list[str] = []
        for item in wanted:
            found = [path for path in left if item in (path, f"{posixpath.dirname(path)}/")]
            left = [path for path in left if path not in found]
            pages += found
        sections.append({title: pages})
    return [{"Overview": "index.md"}, *sections]


def api_page(title: str, module: ModuleType) -> str:
    """Write the directives that make a page of a module's public names."""
    names = [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    listed = [f"::: {module.__name__}.{name}\n" for name in names if name != "__version__"]
    return "\n".join([f"# {title}\n", f"`import {module.__name__}`\n", *listed])


def properties_page(keys: DeviceKeys) -> str:
    """Write the tables of one device."""
    lines = [f"# {keys.device}", "", f"As `aioinfer properties {keys.device}` lists them."]
    if keys.missing:
        lines += ["", f"Where these pages were built: {cell(keys.missing)}"]
    lines += [
        "",
        "## Properties",
        "",
        "Given to `load_network`; to `set_config` if not marked \\*.",
        "",
    ]
    columns = ["property", "type", "default", "values", "what it does"]
    rows = [
        [
            f"`{row.key}`" + r"\*" * row.only_at_load,
            row.type,
            f"`{row.default!r}`",
            row.values,
            row.doc,
        ]
        for row in keys.properties
    ]
    lines += table(columns, rows)
    for title, facts in (("Metrics", keys.metrics), ("Metrics of a network", keys.network_metrics)):
        rows = [[f"`{row.key}`", row.type, row.doc] for row in facts]
        lines += ["", f"## {title}", "", *table(["metric", "type", "what it tells"], rows)]
    return "\n".join(lines) + "\n"


def decisions_page() -> str:
    """List the decisions by their titles."""
    lines = ["# Decisions", "", "Why things are as they are, where that is not obvious.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write a table in Markdown."""
    return [
        f"| {' | '.join(texts)} |"
        for texts in (columns, ["---"] * len(columns), *([*map(cell, row)] for row in rows))
    ]


def cell(text: str) -> str:
    """Write words so that Markdown shows them as they are."""
    return html.escape(text, quote=False).replace("|", r"\|")
