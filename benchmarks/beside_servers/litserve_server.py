"""A model behind LitServe and onnxruntime: what ``serving.py`` stands beside.

Its workers are processes that are given the class by name, so it stands in a module of its own.
"""

from __future__ import annotations

from typing import Any

import litserve
from session_runner import Runner, read_options


class Api(litserve.LitAPI):  # type: ignore[misc]
    """Runs the model of a file."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def setup(self, device: str) -> None:
        self._runner = Runner(self._file)

    def predict(self, document: dict[str, Any]) -> dict[str, Any]:
        return self._runner.run(document)


def main() -> None:
    options = read_options(__doc__)
    server = litserve.LitServer(Api(options.model), accelerator="cpu")
    server.run(host="127.0.0.1", port=options.port, log_level="warning", generate_client_file=False)


if __name__ == "__main__":
    main()
