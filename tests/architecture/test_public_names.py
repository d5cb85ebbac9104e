"""The public names are the ones that were promised, no fewer and no more."""

import aioinfer
from architecture.tree import pyproject

PROMISED = {
    "AsyncInferQueue",
    "Attribute",
    "Callback",
    "CopiedBytes",
    "Core",
    "CoreStatistics",
    "DeviceStatistics",
    "DType",
    "Dim",
    "Division",
    "Durations",
    "ExecutableNetwork",
    "Extension",
    "Graph",
    "InferRequest",
    "InferTypes",
    "MapType",
    "Model",
    "ModelSource",
    "NetworkStatistics",
    "Node",
    "NodeProfile",
    "NodeSpan",
    "OptionalType",
    "PathPart",
    "PlanStatistics",
    "Plugin",
    "Port",
    "Postprocess",
    "PrePostProcessor",
    "Preprocess",
    "QueueCallback",
    "Results",
    "RunProfile",
    "SequenceType",
    "Shape",
    "Source",
    "Span",
    "SpanSequence",
    "StageStatistics",
    "Support",
    "SupportMap",
    "Tensor",
    "TensorType",
    "Trace",
    "TracedRun",
    "Value",
    "ValueType",
    "VariableState",
    "__version__",
    "errors",
    "plugins",
    "preprocess",
    "testing",
}


def test_all_holds_the_promised_names_and_nothing_else() -> None:
    public = set(aioinfer.__all__)
    assert sorted(PROMISED - public) == []
    assert sorted(public - PROMISED) == []
    assert len(aioinfer.__all__) == len(public)


def test_every_public_name_is_there() -> None:
    assert [name for name in aioinfer.__all__ if not hasattr(aioinfer, name)] == []


def test_every_public_name_is_listed_by_dir() -> None:
    assert set(aioinfer.__all__) <= set(dir(aioinfer))


def test_the_version_is_the_one_that_is_built() -> None:
    assert aioinfer.__version__ == pyproject()["project"]["version"]
