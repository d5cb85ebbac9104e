"""Check the package's types, strictly, in a view of links.

mypy does not follow setuptools' package-dir, so build/view/aioinfer/ shows the parts where they are
after installation. Messages name the files as they lie in the repository.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VIEW = ROOT / "build" / "view"


def make_view(folders: dict[str, str]) -> None:
    """Link the front door's entries and each part's folder together under build/view/aioinfer/."""
    shutil.rmtree(VIEW, ignore_errors=True)
    package = VIEW / "aioinfer"
    package.mkdir(parents=True)
    for entry in (ROOT / folders["aioinfer"]).iterdir():
        (package / entry.name).symlink_to(entry)
    for name, folder in folders.items():
        if name != "aioinfer":
            (package / name.removeprefix("aioinfer.")).symlink_to(ROOT / folder)


def main() -> int:
    """Run mypy on the view and print what it says; give its exit status."""
    config = ROOT / "pyproject.toml"
    settings = tomllib.loads(config.read_text(encoding="utf-8"))
    folders: dict[str, str] = settings["tool"]["setuptools"]["package-dir"]
    make_view(folders)
    command = [sys.executable, "-m", "mypy", "-p", "aioinfer"]
    options = ["--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run([*command, *options], cwd=VIEW, stdout=subprocess.PIPE, text=True)
    text = done.stdout
    for name, folder in folders.items():
        if name != "aioinfer":
            text = re.sub(rf"^{name.replace('.', '/')}/", f"{folder}/", text, flags=re.MULTILINE)
    print(text, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
