"""A model behind MLServer and onnxruntime: what ``serving.py`` stands beside.

It takes the same requests as ours. Its workers are switched off, as one process is measured.
"""

from __future__ import annotations

import asyncio
from typing import Any

import onnxruntime
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from session_runner import read_options


class Served(MLModel):  # type: ignore[misc]
    """Runs the model of a file."""

    async def load(self) -> bool:
        uri = self.settings.parameters.uri
        self._session = onnxruntime.InferenceSession(uri, providers=["CPUExecutionProvider"])
        self._names = [each.name for each in self._session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feed = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        results: list[Any] = self._session.run(None, feed)
        outputs = [
            NumpyCodec.encode_output(name, array)
            for name, array in zip(self._names, results, strict=True)
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)


async def serve(file: str, port: int) -> None:
    settings = Settings(
        host="127.0.0.1",
        http_port=port,
        grpc_port=port + 1,
        metrics_port=port + 2,
        parallel_workers=0,
        debug=False,
    )
    model = ModelSettings(name="model", implementation=Served, parameters={"uri": file})
    await MLServer(settings).start([model])


def main() -> None:
    options = read_options(__doc__)
    asyncio.run(serve(options.model, options.port))


if __name__ == "__main__":
    main()
