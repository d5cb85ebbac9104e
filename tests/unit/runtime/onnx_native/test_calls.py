import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
import onnx.inliner
import onnx.parser
import onnx.shape_inference
import onnx.version_converter
import pytest

from aioinfer.errors import DeviceError, ModelError
from aioinfer.runtime.onnx_native import calls as native
from aioinfer.runtime.onnx_native import helper_process
from aioinfer.runtime.onnx_native.helper_pool import HelperPool
from aioinfer.runtime.onnx_native.helper_process import Helper
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from unit.runtime.onnx_native.helper_programs import ECHO, write_program

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
def own_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[HelperPool]:
    pool = HelperPool()
    monkeypatch.setattr(native, "_pool", pool)
    yield pool
    for helper in pool.helpers():
        helper.end()


@pytest.fixture
def no_onnx_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make calls of onnx's C++ parts in this process fail."""

    def called(*_: Any, **__: Any) -> None:
        pytest.fail("onnx was called in this process")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", called)
    monkeypatch.setattr(onnx.version_converter, "convert_version", called)
    monkeypatch.setattr(onnx.inliner, "inline_local_functions", called)


def test_a_model_that_ends_onnxs_process_is_refused_and_the_next_one_is_read() -> None:
    with pytest.raises(ModelError, match="own code ended its process by SIG"):
        read_model(killer(opset=11))
    assert_honest_is_read()


def test_what_our_own_rules_refuse_never_comes_to_the_inference() -> None:
    with pytest.raises(ModelError, match="has 3 axes, and 4 are wanted"):
        read_model(killer(opset=NEWEST))
    assert_honest_is_read()


def test_a_helper_that_was_ended_is_started_again(own_pool: HelperPool) -> None:
    assert_honest_is_read()
    (helper,) = own_pool.helpers()
    helper.end()
    assert_honest_is_read()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("no_onnx_here")
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of"),
        ("import os; os.kill(os.getpid(), 9)", "by SIGKILL"),
        ("import os; os._exit(0)", "with code 0"),
        ("print('hello, I am another program', flush=True)", "gave an answer of"),
        ("raise SystemExit(3)", "with code 3"),
    ],
)
def test_a_helper_that_dies_while_it_loads_is_an_error_and_the_next_call_has_another(
    program: str,
    reason: str,
    own_pool: HelperPool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as damaged:
        damaged.setattr(helper_process, "PROGRAM", write_program(tmp_path, program))
        for _ in range(2):
            with pytest.raises(ModelError, match=f"cannot be started: .*{reason}"):
                read_model(honest())
    assert own_pool.helpers() == []
    assert_honest_is_read()


def refused(model: onnx.ModelProto) -> str:
    with pytest.raises(ModelError, match=r"runs in a helper process.*cannot be started") as caught:
        read_model(model)
    return str(caught.value)


@pytest.mark.usefixtures("no_onnx_here", "own_pool")
@pytest.mark.parametrize("executable", ["", "/nowhere/python", "/bin/false"])
def test_where_no_helper_can_be_started_a_model_that_needs_it_is_refused(
    executable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    text = refused(honest())
    assert f"opset {NEWEST} beforehand" in text
    assert "AIOINFER_ONNX_IN_PROCESS=1" in text


@pytest.mark.usefixtures("no_onnx_here")
def test_a_frozen_program_starts_itself_no_second_time(
    own_pool: HelperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert "frozen program" in refused(honest())
    assert own_pool.helpers() == []


def test_who_asks_for_it_has_onnx_called_in_its_own_process(
    own_pool: HelperPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setenv("AIOINFER_ONNX_IN_PROCESS", "1")
    assert_honest_is_read()
    assert own_pool.helpers() == []
    with pytest.raises(ModelError, match="No Adapter"):
        read_model(
            onnx.parser.parse_model(
                '<ir_version: 7, opset_import: ["" : 1]> g (float[2] x) => (y) { y = Tile(x,x,x) }'
            )
        )


def test_an_answer_that_is_no_model_is_an_error(
    own_pool: HelperPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = ECHO.replace("(replies, True, content)", "(replies, True, b'\\x3a\\xff' + content)")
    monkeypatch.setattr(helper_process, "PROGRAM", write_program(tmp_path, damaged))
    with pytest.raises(ModelError, match="answer that cannot be read"):
        native.convert_version(honest(), NEWEST)
    assert len(own_pool.helpers()) == 1


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_reads_with_a_helper_of_its_own_and_both_end_quietly() -> None:
    script = """
        import os, sys
        from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
        from aioinfer.runtime.onnx_native import calls as native
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


@pytest.mark.usefixtures("no_onnx_here", "own_pool")
def test_where_the_process_has_no_files_left_for_a_helper_it_is_told_so_and_another_try_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(helper: Helper) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as exhausted:
        exhausted.setattr(Helper, "start", refuse)
        with pytest.raises(DeviceError, match=r"starting a helper process.*ulimit -n"):
            read_model(honest())
    assert_honest_is_read()
