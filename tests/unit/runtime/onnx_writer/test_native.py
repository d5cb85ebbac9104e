import os
import subprocess
import sys
import textwrap

import onnx
import onnx.defs
import onnx.parser
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.onnx_writer import native

NEWEST = onnx.defs.onnx_opset_version()


def killer(opset: int) -> onnx.ModelProto:
    """A model at which onnx's shape inference ends its process: it indexes behind a vector."""
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (float[1,1,3,3] x, float[1,2,3] w) => (y) {{ y = ConvTranspose (x, w) }}"""
    )


def honest(opset: int = 9) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (float[2,3] x) => (y) {{ y = Softmax (x) }}"""
    )


def assert_honest_is_read() -> None:
    assert str(read_model(honest()).outputs[0].type) == "float32[2,3]"


@pytest.fixture
def own_state(monkeypatch: pytest.MonkeyPatch) -> native._State:
    state = native._State()
    monkeypatch.setattr(native, "_state", state)
    return state


def test_a_model_that_ends_onnxs_process_is_refused_and_the_next_one_is_read() -> None:
    with pytest.raises(ModelError, match="own code ended its process by SIG"):
        read_model(killer(opset=11))
    assert_honest_is_read()


def test_a_model_at_which_only_the_inference_ends_its_process_has_no_types() -> None:
    model = read_model(killer(opset=NEWEST))
    assert model.outputs[0].type is None
    assert_honest_is_read()


def test_a_helper_that_was_ended_is_started_again() -> None:
    assert_honest_is_read()
    native._state.close()
    assert_honest_is_read()


def test_an_interrupted_call_leaves_no_answer_to_the_next(
    own_state: native._State, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_honest_is_read()
    helper = own_state.helper()
    assert helper is not None

    def interrupt(deadline: float) -> tuple[bool, bytes]:
        raise KeyboardInterrupt

    monkeypatch.setattr(helper, "_receive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        native.convert_version(honest(), NEWEST)
    assert_honest_is_read()
    own_state.close()


def test_a_frozen_program_calls_onnx_in_its_own_process(
    own_state: native._State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(native, "_state", native._State())
    assert_honest_is_read()
    assert native._state.helper() is None
    with pytest.raises(ModelError, match="No Adapter"):
        read_model(
            onnx.parser.parse_model(
                '<ir_version: 7, opset_import: ["" : 1]> g (float[2] x) => (y) { y = Tile(x,x,x) }'
            )
        )


@pytest.mark.parametrize("executable", ["", "/nowhere/python", "/bin/false"])
def test_where_no_helper_can_be_started_onnx_is_called_in_this_process(
    executable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(native, "_state", native._State())
    assert_honest_is_read()
    assert native._state.helper() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_reads_with_a_helper_of_its_own_and_both_end_quietly() -> None:
    script = """
        import os, sys
        from aioinfer.runtime.onnx_reader import read_model
        from aioinfer.runtime.onnx_writer import native
        import onnx.parser
        proto = onnx.parser.parse_model(
            '<ir_version: 7, opset_import: ["" : 9]> g (float[2] x) => (y) { y = Softmax (x) }'
        )
        read_model(proto)
        child = os.fork()
        read_model(proto)
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
