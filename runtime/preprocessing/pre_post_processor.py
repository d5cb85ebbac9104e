"""PrePostProcessor: what users hold, with OpenVINO's methods."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import ModelError, TensorError, nearest
from ..graph import Model, TensorType, Value
from .building import built_graph
from .color_format import ColorFormat
from .declared import DeclaredInput, DeclaredOutput
from .description import described_input, described_output
from .given_tensors import GivenFacts
from .layout import Layout
from .port_name import PortName
from .state import Target
from .steps import PostProcessSteps, PreProcessSteps
from .tensor_info import InputModelInfo, InputTensorInfo, OutputModelInfo, OutputTensorInfo

__all__ = ["InputInfo", "OutputInfo", "PrePostProcessor"]


class InputInfo:
    """All that is declared for one input."""

    def __init__(self, port: PortName, type: TensorType) -> None:
        self._port, self._type = port, type
        self._tensor = InputTensorInfo(port)
        self._steps = PreProcessSteps(port)
        self._model = InputModelInfo(port)

    def tensor(self) -> InputTensorInfo:
        """Say what the user gives."""
        return self._tensor

    def preprocess(self) -> PreProcessSteps:
        """Say what is done to it, in order."""
        return self._steps

    def model(self) -> InputModelInfo:
        """Say what the model takes."""
        return self._model

    def _declared(self) -> DeclaredInput:
        said = self._tensor
        facts = GivenFacts(
            said._dtype,
            said._layout,
            said._color or ColorFormat.UNDEFINED,
            said._sub_names,
            said._shape,
            said._spatial,
        )
        layout = self._model._layout or Layout()
        target = Target(self._type.dtype, self._type.shape, layout)
        return DeclaredInput(self._port, target, facts, tuple(self._steps._steps))


class OutputInfo:
    """All that is declared for one output."""

    def __init__(self, port: PortName, type: TensorType) -> None:
        self._port, self._type = port, type
        self._tensor = OutputTensorInfo(port)
        self._steps = PostProcessSteps(port)
        self._model = OutputModelInfo(port)

    def tensor(self) -> OutputTensorInfo:
        """Say what the user gets."""
        return self._tensor

    def postprocess(self) -> PostProcessSteps:
        """Say what is done to the output, in order."""
        return self._steps

    def model(self) -> OutputModelInfo:
        """Say what the model gives."""
        return self._model

    def _declared(self) -> DeclaredOutput:
        return DeclaredOutput(
            self._port,
            self._type,
            self._model._layout or Layout(),
            self._tensor._dtype,
            self._tensor._layout or Layout(),
            tuple(self._steps._steps),
        )


class PrePostProcessor:
    """Steps around a model, declared with OpenVINO's methods and built into it as nodes.

    ``repr`` shows the plan. Every error of a declaration is a TensorError that names the input or
    output; what calls can tell, they tell at once, and ``build`` the rest.

    ```python
    with aioinfer.Core() as core:
        model = core.read_model("model.onnx")
        ppp = aioinfer.PrePostProcessor(model)
        ppp.input().tensor().set_element_type("u8").set_layout("NHWC")
        ppp.input().preprocess().convert_element_type("f32").mean(127.5).scale(127.5)
        ppp.input().model().set_layout("NCHW")
        network = core.load_network(ppp.build(), "REFERENCE")
        print(network.inputs[0])  # uint8 of shape [batch,8,8,1]
    ```
    """

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise ModelError(
                f"PrePostProcessor takes a Model, not {type(model).__name__}; make one with "
                f"Core.read_model"
            )
        self._model = model
        self._is_built = False
        self._inputs: dict[int, InputInfo] = {}
        self._outputs: dict[int, OutputInfo] = {}

    def input(self, id: str | int | None = None) -> InputInfo:
        """Return what is declared for an input, by name or position; the only one by default."""
        return _found(self._inputs, "input", self._model.inputs, id, InputInfo)

    def output(self, id: str | int | None = None) -> OutputInfo:
        """Return what is declared for an output, by name or position; the only one by default."""
        return _found(self._outputs, "output", self._model.outputs, id, OutputInfo)

    def build(self) -> Model:
        """Write the steps into the model, and return it; once.

        Inputs and outputs keep their names, and several planes of one are called ``image/Y`` and so
        on. The model is as it was if that fails. What was taken from it before, such as a node,
        belongs to it no more.
        """
        if self._is_built:
            raise ModelError(
                f"the steps are in the model {self._model.name!r} already; make another "
                f"PrePostProcessor for more of them"
            )
        inputs = [info._declared() for _, info in sorted(self._inputs.items())]
        outputs = [info._declared() for _, info in sorted(self._outputs.items())]
        self._model.graph = built_graph(self._model, inputs, outputs)
        self._is_built = True
        return self._model

    def __str__(self) -> str:
        inputs = (info._declared() for _, info in sorted(self._inputs.items()))
        outputs = (info._declared() for _, info in sorted(self._outputs.items()))
        return "".join(map(described_input, inputs)) + "".join(map(described_output, outputs))

    def __repr__(self) -> str:
        return f"<PrePostProcessor: {self}>"


Info = TypeVar("Info", InputInfo, OutputInfo)


def _found(
    known: dict[int, Info],
    kind: str,
    values: Sequence[Value],
    asked: str | int | None,
    make: Callable[[PortName, TensorType], Info],
) -> Info:
    """Return the port that is asked for, the same object each time."""
    names = [value.name for value in values]
    index = _index_of(kind, names, asked)
    if index not in known:
        type = values[index].type
        if not isinstance(type, TensorType):
            raise TensorError(
                f"{kind} {names[index]!r} is {type or 'of unknown type'}, and steps are for "
                f"tensors",
                tensor=names[index],
            )
        known[index] = make(PortName(kind, names[index], index), type)
    return known[index]


def _index_of(kind: str, names: Sequence[str], asked: str | int | None) -> int:
    if asked is None:
        if len(names) == 1:
            return 0
        raise TensorError(f"the model has {len(names)} {kind}s; say which: {names}")
    if isinstance(asked, str):
        if asked in names:
            return names.index(asked)
        raise TensorError(
            f"the model has no {kind} {asked!r}{nearest(asked, names)}; it has {names}",
            tensor=asked,
        )
    try:
        index = operator.index(asked)
    except TypeError:
        index = -1
    if not 0 <= index < len(names):
        raise TensorError(f"{asked!r} is no {kind} of the model, which has {len(names)}: {names}")
    return index
