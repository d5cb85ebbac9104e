"""Export and import on every device: the same network again, and no other bytes."""

from __future__ import annotations

import io
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import SkipTest

import numpy as np

from ...errors import BlobError, NotSupportedError, UnsupportedOpError
from .conformance_case import behaviour, expect, expect_equal, expect_error, load
from .conformance_models import SAMPLES, SampleModel, sample_named
from .conformance_states import STATE, SUM, X

if TYPE_CHECKING:
    from onnx import ModelProto

    from ..devices.core import Core
    from ..network.executable_network import ExecutableNetwork

EXPORTABLE = {"EXPORTABLE": True}


@behaviour
def _what_is_imported_computes_the_same(core: Core, device: str) -> None:
    count = 0
    for sample in SAMPLES:
        try:
            network = load(core, device, sample, EXPORTABLE)
        except (SkipTest, NotSupportedError):  # of a virtual device, for this model
            continue
        with network, core.import_network(_exported(network)) as imported:
            _expect_the_same_facts(imported, network)
            asked, wanted = imported.create_infer_request(), network.create_infer_request()
            for inputs in sample.feeds():
                found = asked.infer_sync(inputs)
                for name, array in wanted.infer_sync(inputs).items():
                    expect_equal(found[name], array, f"{name!r} of {sample.name}, imported")
        count += 1
    if not count:
        raise SkipTest(f"{device} runs none of the samples")


@behaviour
def _what_has_let_go_of_its_model_is_exported_as_it_was_compiled(core: Core, device: str) -> None:
    count = 0
    for sample in SAMPLES:
        model = core.read_model(sample.proto())
        model.reshape(sample.shapes[0])
        try:
            network = core.load_network(model, device)
        except (NotSupportedError, UnsupportedOpError):
            continue
        with network:
            try:
                blob = network.export()
            except NotSupportedError:
                continue
            with core.import_network(blob) as imported:
                _expect_the_same_facts(imported, network)
                inputs = sample.feeds()[0]
                wanted = network.create_infer_request().infer_sync(inputs)
                found = imported.create_infer_request().infer_sync(inputs)
                for name, array in wanted.items():
                    expect_equal(found[name], array, f"{name!r} of {sample.name}, imported")
                expect(imported.export() == blob, f"{sample.name} is exported as it was imported")
        count += 1
    if not count:
        raise SkipTest(f"{device} exports nothing without its model")


@behaviour
def _what_was_loaded_from_a_path_is_exported_without_being_asked_to_keep(
    core: Core, device: str
) -> None:
    if "EXPORT_IMPORT" not in core.get_metric(
        device.partition(":")[0], "OPTIMIZATION_CAPABILITIES"
    ):
        raise SkipTest(f"{device} exports nothing")
    with tempfile.TemporaryDirectory() as name:
        path, blob = Path(name, "fixed.onnx"), Path(name, "fixed.blob")
        path.write_bytes(_fixed().SerializeToString())
        with core.load_network(path, device) as network:
            try:
                network.export(blob)
            except NotSupportedError as error:  # its parts have no file of their own
                expect("EXPORTABLE=True" in str(error), f"the way out is in {error}")
                return
            with core.import_network(blob) as imported:
                if not device.startswith("AUTO"):  # that exports the network which it has chosen
                    _expect_the_same_facts(imported, network)
                wanted = network.create_infer_request().infer_sync({"x": X})
                found = imported.create_infer_request().infer_sync({"x": X})
                expect_equal(found["y"], wanted["y"], "'y', imported")
                again = imported.export()
        path.unlink()
        with core.import_network(again) as second:
            expect_equal(second.create_infer_request().infer_sync({"x": X})["y"], wanted["y"], "y")


def _fixed() -> ModelProto:
    """Make a model of fixed shapes whose weights are large enough to be released."""
    from onnx import TensorProto, helper, numpy_helper

    weight = np.arange(64 * X.shape[1], dtype=np.float32).reshape(X.shape[1], 64) / 64
    back = np.full((64, X.shape[1] * 32), 0.5, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("MatMul", ["h", "v"], ["y"]),
        ],
        "fixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [X.shape[0], X.shape[1] * 32])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(back, "v")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@behaviour
def _an_export_is_a_path_a_file_or_bytes(core: Core, device: str) -> None:
    with (
        load(core, device, _sample(), EXPORTABLE) as network,
        tempfile.TemporaryDirectory() as name,
    ):
        blob = _exported(network)
        path = Path(name, "net.blob")
        path.write_bytes(b"what was there before")
        network.export(path)
        expect(path.read_bytes() == blob, "two exports of a network are the same bytes")
        file = io.BytesIO()
        network.export(file)
        expect(file.getvalue() == blob, "a file gets the same bytes")
        for source in (path, str(path), blob, io.BytesIO(blob)):
            with core.import_network(source, name="again") as imported:
                expect(imported.name == "again", "the imported network is called as asked")


@behaviour
def _an_imported_network_is_exported_again(core: Core, device: str) -> None:
    with load(core, device, _sample(), EXPORTABLE) as network:
        blob = _exported(network)
    with core.import_network(blob) as imported, core.import_network(_exported(imported)) as second:
        _expect_the_same_facts(second, imported)


@behaviour
def _an_imported_network_keeps_its_states(core: Core, device: str) -> None:
    try:
        network = load(core, device, SUM, {**STATE, **EXPORTABLE})
    except NotSupportedError as error:
        raise SkipTest(str(error)) from error
    with network, core.import_network(_exported(network)) as imported:
        expect([port.name for port in imported.inputs] == ["x"], "no input is state")
        request = imported.create_infer_request()
        for count in range(1, 3):
            results = request.infer_sync({"x": X})
            expect_equal(results["y"], np.maximum(count * X, 0), f"'y' of run {count}")


@behaviour
def _a_device_says_whether_it_exports(core: Core, device: str) -> None:
    has_said = "EXPORT_IMPORT" in core.get_metric(
        device.partition(":")[0], "OPTIMIZATION_CAPABILITIES"
    )
    with load(core, device, _sample(), EXPORTABLE) as network:
        try:
            network.export()
        except NotSupportedError as error:
            expect(not has_said, f"{device} exports, as EXPORT_IMPORT says: {error}")
        else:
            expect(has_said, f"{device} has EXPORT_IMPORT among its OPTIMIZATION_CAPABILITIES")


@behaviour
def _damaged_exports_are_refused(core: Core, device: str) -> None:
    with load(core, device, _sample(), EXPORTABLE) as network:
        blob = _exported(network)
    for size in (0, 7, 20, 64, len(blob) // 2, len(blob) - 1):
        part = blob[:size]
        what = f"importing {size} of {len(blob)} bytes"
        expect_error(BlobError, partial(core.import_network, part), what)
    expect_error(BlobError, lambda: core.import_network(blob + b"\0"), "importing a byte too many")
    flipped = bytearray(blob)
    flipped[70] ^= 1
    expect_error(BlobError, lambda: core.import_network(bytes(flipped)), "importing a flipped bit")


def _sample() -> SampleModel:
    return sample_named("doubled")


def _exported(network: ExecutableNetwork) -> bytes:
    try:
        return network.export()
    except NotSupportedError as error:
        raise SkipTest(str(error)) from error


def _expect_the_same_facts(imported: ExecutableNetwork, network: ExecutableNetwork) -> None:
    for fact in ("name", "device", "inputs", "outputs", "execution_devices", "removed_nodes"):
        found, wanted = getattr(imported, fact), getattr(network, fact)
        expect(found == wanted, f"{fact} is {wanted!r} after the import, not {found!r}")
    for key in network.config:
        found, wanted = imported.get_config(key), network.get_config(key)
        expect(found == wanted, f"{key} is {wanted!r} after the import, not {found!r}")
    for key in network.all_metrics():
        found, wanted = imported.get_metric(key), network.get_metric(key)
        expect(found == wanted, f"{key} is {wanted!r} after the import, not {found!r}")
