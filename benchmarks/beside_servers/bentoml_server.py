"""A model behind BentoML and onnxruntime: what ``serving.py`` stands beside.

Its workers import the service by name, so the model's file comes in the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import bentoml
from session_runner import Runner, read_options

FILE_VARIABLE = "BENTOML_SERVER_MODEL"


@bentoml.service(workers=1)  # type: ignore[untyped-decorator]
class Served:
    """Runs the model of a file."""

    def __init__(self) -> None:
        self._runner = Runner(os.environ[FILE_VARIABLE])

    @bentoml.api  # type: ignore[untyped-decorator]
    def predict(self, document: dict[str, Any]) -> dict[str, Any]:
        return self._runner.run(document)


def main() -> None:
    options = read_options(__doc__)
    os.environ[FILE_VARIABLE] = options.model
    os.environ["BENTOML_DO_NOT_TRACK"] = "true"
    os.chdir(Path(__file__).parent)
    serve = [sys.executable, "-m", "bentoml", "serve", "bentoml_server:Served"]
    os.execv(sys.executable, [*serve, "--host", "127.0.0.1", "--port", str(options.port)])


if __name__ == "__main__":
    main()
