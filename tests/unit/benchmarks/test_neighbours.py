"""The neighbours come and go, engines take turns beside them, and what they write is kept."""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from neighbours_measuring import Findings, Plan, measure
from neighbours_processes import busy_processes, cpu_s_in, cpu_s_of
from neighbours_quota import (
    Place,
    QuotaError,
    join,
    limited,
    made,
    places,
    refusal,
    settings_of,
    sweep,
)
from neighbours_runs import Window, awaited_runs, blocking_runs
from neighbours_threads import busy_thread, decoder_threads
from neighbours_worker import NeighboursWorker

neighbours = importlib.import_module("neighbours")

NO_TIME = Window(lead_in_s=0.0, seconds=0.0, least_runs=3)


def ran(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_busy_processes_compute_and_end_with_the_block() -> None:
    ids: list[int] = []

    def interrupted() -> None:
        with busy_processes(2) as started:
            ids.extend(started)
            for process_id in ids:
                while cpu_s_of(process_id) < 0.1:
                    assert ran(process_id)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(ids) == 2
    assert not any(map(ran, ids))
    assert cpu_s_of(ids[0]) == 0


def test_a_busy_process_ends_when_its_starter_is_killed() -> None:
    program = "from neighbours_processes import *\nwith busy_processes(1): print(1, flush=True); "
    command = [sys.executable, "-c", program + "sys.stdin.read()"]
    path = str(Path(neighbours.__file__).parent)
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stderr is not None
        assert starter.stdout.readline() == b"1\n"
        starter.send_signal(signal.SIGKILL)
        assert starter.stderr.read() == b""  # its end is there once the busy process is gone


def test_the_time_of_a_process_is_read_past_its_name() -> None:
    stat = "7 (a b) c) R 1 7 7 0 -1 0 0 0 0 0 250 50 0 0 20 0 1 0 100 0 0"
    assert cpu_s_in(stat, 100) == 3.0


def test_a_group_is_made_below_the_own_one_or_at_the_root() -> None:
    root = Path("/cg")
    v1 = "5:cpuset:/\n4:cpu,cpuacct:/box\n1:name=systemd:/\n0::/box\n"
    assert places(v1, root) == [
        Place(root / "cpu,cpuacct" / "box", False),
        Place(root / "cpu,cpuacct", False),
        Place(root / "box", True),
        Place(root, True),
    ]
    assert places("0::/\n", root) == [Place(root, True)]
    assert places("0::/../elsewhere\n", root) == []


def test_a_quota_is_written_in_each_format() -> None:
    assert settings_of(1.5, is_v2=True) == {"cpu.max": "150000 100000"}
    assert settings_of(1.0, is_v2=False) == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "100000",
    }


def test_without_a_group_there_is_a_reason_and_nothing_is_left(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (group / "cgroup.procs").touch()
    where = [Place(tmp_path, True), Place(group, True), Place(group, False)]
    with pytest.raises(QuotaError) as raised:
        made(1.0, where)
    assert f"{tmp_path} is no control group" in str(raised.value)
    assert f"{group} gives its groups no cpu.max" in str(raised.value)
    assert f"{group} gives its groups no cpu.cfs_period_us" in str(raised.value)
    assert [file.name for file in group.iterdir()] == ["cgroup.procs"]
    with pytest.raises(QuotaError, match="no CPU controller"):
        made(1.0, [])


def test_groups_of_killed_processes_are_swept(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait(30)
    names = [f"aioinfer-neighbours-{maker}-0" for maker in (ended.pid, os.getpid())]
    for name in names:
        (tmp_path / name).mkdir()
    sweep(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == names[1:]


def test_a_process_is_limited_until_the_group_goes() -> None:
    if reason := refusal(0.5):
        pytest.skip(reason)
    program = "from aioinfer.executors import allowed_cpus as a; input(); print(a().quota)"
    with limited(0.5) as group:
        assert group is not None
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            join(group, process.pid)
            said, _ = process.communicate(b"\n", timeout=30)
    assert float(said) == 0.5
    assert not group.exists()
    assert refusal(None) is None


def test_threads_beside_end_with_their_blocks() -> None:
    pytest.importorskip("PIL")
    before = threading.active_count()
    with busy_thread(), decoder_threads(2) as decoded:
        assert threading.active_count() == before + 3
        while decoded() < 3:
            pass
    assert threading.active_count() == before


def fail() -> None:
    raise OSError("no more")


def test_runs_are_timed_after_the_lead_in() -> None:
    called: list[int] = []
    (taken,) = blocking_runs([lambda: called.append(threading.get_ident())], NO_TIME)
    assert len(taken) == 3
    assert called == [threading.get_ident()] * 4
    (taken,) = blocking_runs([lambda: None], Window(0.01, 0.01, 1))
    assert 0 < sum(taken) < 1
    with pytest.raises(OSError, match="no more"):
        blocking_runs([fail], NO_TIME)


def test_several_networks_run_at_once() -> None:
    both = threading.Barrier(2, timeout=20)
    assert [len(taken) for taken in blocking_runs([both.wait, both.wait], NO_TIME)] == [3, 3]
    with pytest.raises(OSError, match="no more"):
        blocking_runs([int, fail], NO_TIME)


async def test_several_networks_are_awaited_at_once() -> None:
    both = asyncio.Barrier(2)
    async with asyncio.timeout(20):
        taken = await awaited_runs([both.wait, both.wait], NO_TIME)
    assert [len(one) for one in taken] == [3, 3]


class Drifting:
    """An engine that answers something else each time."""

    def __init__(self, file: str, setting: object) -> None:
        self.answer = np.ones(3)

    def infer(self, inputs: object) -> dict[str, Any]:
        self.answer = self.answer + 1
        return {"y": self.answer}

    def close(self) -> None: ...


def test_an_answer_that_neighbours_change_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(importlib.import_module("peers_engines").ENGINES, "drifting", Drifting)
    np.savez(tmp_path / "inputs.npz", x=np.ones(3))
    worker = NeighboursWorker()
    files = {
        "file": "",
        "inputs": str(tmp_path / "inputs.npz"),
        "setting": [False, None, "f32", ""],
    }
    worker.answer({"do": "load", "engine": "drifting", "network_count": 1, **files})
    question = {"do": "turn", "seconds": 0, "least_runs": 1, "busy_threads": 0, "decoders": 0}
    with pytest.raises(ArithmeticError, match="off what it was alone"):
        worker.answer({**question, "is_awaited": False, "times": str(tmp_path / "times.npy")})
    worker.close()


def test_a_restless_engine_is_named_once() -> None:
    said: list[str] = []
    findings = Findings(say=said.append)
    for cpus in (0.01, 0.3, 0.2):
        findings.note_idle("openvino", cpus)
    assert said == ["openvino used 0.30 CPUs while another engine had its turn"]
    assert findings.idle_cpus == {"openvino": 0.3}


@pytest.mark.parametrize("is_awaited", [False, True])
def test_engines_take_turns_in_each_situation(is_awaited: bool) -> None:
    pytest.importorskip("onnxruntime")
    said: list[str] = []
    findings = Findings(say=said.append, device="NOWHERE")
    plan = Plan(("perceptron",), ("alone", "busy1"), 1, 0.01, least_runs=2, is_awaited=is_awaited)
    measure(findings, plan, ("aioinfer", "onnxruntime"))
    assert "NOWHERE" in findings.left_out["aioinfer on perceptron, alone"]
    for name in plan.situations:
        (turn,) = findings.turns["perceptron", name]["onnxruntime"]
        assert len(turn.times_ms) >= 2
        assert turn.value > 0
    findings = Findings(say=said.append, device="ONNXRUNTIME")
    plan = Plan(("perceptron",), ("pair",), 2, 0.01, least_runs=2, is_awaited=is_awaited)
    measure(findings, plan, ("aioinfer",))
    assert not findings.left_out
    first, second = findings.turns["perceptron", "pair"]["aioinfer"]
    assert min(len(first.times_ms), len(second.times_ms)) >= 4


def test_a_short_measurement_writes_rows_and_keeps_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    file = tmp_path / "rows.json"
    options = ["--models", "perceptron", "--situations", "alone,quota1", "--rounds", "1"]
    options += ["--seconds", "0.01", "--device", "ONNXRUNTIME", "--save", "--json", str(file)]
    options += ["--engines", "aioinfer,onnxruntime"]
    monkeypatch.setattr(sys, "argv", ["neighbours.py", *options])
    monkeypatch.setattr(neighbours, "RESULTS", tmp_path)
    neighbours.main()
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    (kept,) = (json.loads(one.read_text()) for one in tmp_path.glob("*-neighbours.json"))
    assert kept["is_complete"]
    assert kept["cases"]["neighbours"] == rows
    situations = ["alone"] if "quota1" in kept["left_out"] else ["alone", "quota1"]
    assert kept["settings"]["situations"] == situations
    assert [(row["situation"], row["engine"]) for row in rows if row["engine"] == "aioinfer"] == [
        (name, "aioinfer") for name in situations
    ]
    for row in rows:
        assert row["mean_ms"] > 0
        assert ("mean_ratio" in row) == (row["engine"] == "aioinfer")


def test_the_runner_of_all_benchmarks_finds_it() -> None:
    run = importlib.import_module("run")
    assert "neighbours" in run.CASES
    assert not [name for name in run.CASES if name.startswith("neighbours_")]
