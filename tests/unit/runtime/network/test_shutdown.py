"""The ends of a process: exit with work under way, fork, Ctrl-C; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from child_process import HAS_FORK, run_script

FORK = pytest.mark.skipif(not HAS_FORK, reason="this system has no fork")
SIGNALS = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to a thread")

COMMON = """
    import asyncio, os, queue, random, signal, sys, threading, time
    from functools import partial
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    import aioinfer
    from aioinfer.errors import ClosedError
    from aioinfer.testing import MockDevices

    refuses = partial(refuses, kind=ClosedError, text="made before fork; load in the child")
    X = np.array([[-1, 2, 3]], np.float32)

    def interrupt_main():
        main = threading.main_thread().ident
        threading.Timer(0, signal.pthread_kill, [main, signal.SIGINT]).start()

    def model():
        info = helper.make_tensor_value_info
        return helper.make_model(
            helper.make_graph(
                [helper.make_node("Relu", ["x"], ["y"], "relu")],
                "tiny",
                [info("x", TensorProto.FLOAT, ["n", 3])],
                [info("y", TensorProto.FLOAT, ["n", 3])],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )

    def slow_model():
        # Each run multiplies matrices for long enough that an exit meets it.
        weight = helper.make_tensor("w", TensorProto.FLOAT, [256, 256], [0.01] * 65536)
        nodes, last = [], "x"
        for index in range(200):
            nodes.append(helper.make_node("MatMul", [last, "w"], [f"v{index}"], f"n{index}"))
            last = f"v{index}"
        info = helper.make_tensor_value_info
        return helper.make_model(
            helper.make_graph(
                nodes,
                "slow",
                [info("x", TensorProto.FLOAT, [256, 256])],
                [info(last, TensorProto.FLOAT, [256, 256])],
                [weight],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )
"""


def run(script: str, folder: Path, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own."""
    program = textwrap.dedent(COMMON) + textwrap.dedent(script)
    return run_script(program, folder, exit_code=exit_code)


def test_exit_with_queued_and_running_runs_is_quiet(tmp_path: Path) -> None:
    ended = run(
        """
        network = aioinfer.Core().load_network(slow_model(), "REFERENCE")
        requests = [network.create_infer_request() for _ in range(50)]
        for request in requests:
            request.start_async(np.ones((256, 256), np.float32))
        print("main ends")
        """,
        tmp_path,
    )
    assert ended.stdout == "main ends\n"
    assert ended.stderr == ""


@pytest.mark.exhaustive
def test_exit_waits_for_a_device_that_never_finishes_only_for_the_grace(tmp_path: Path) -> None:
    ended = run(
        """
        import atexit, time
        from aioinfer.runtime.network import shutdown

        assert shutdown.GRACE_S == 5.0
        shutdown.GRACE_S = 1.0  # the same path, sooner
        core = aioinfer.Core()
        core.register_plugin("MOCK", MockDevices(2).make_plugin)
        requests = []
        for device in ("MOCK.0", "MOCK.1"):
            network = core.load_network(model(), device)
            requests += [network.create_infer_request() for _ in range(5)]
        def callback(request, error):
            os.write(1, f"told {type(error).__name__}\\n".encode())

        for request in requests:
            request.set_callback(callback)
            request.start_async(X)
        print("main ends", flush=True)
        """,
        tmp_path,
    )
    # Two runs of each network are on the device for ever; all are told.
    assert sorted(ended.stdout.splitlines()) == ["main ends"] + ["told ClosedError"] * 10
    assert ended.stderr == ""


def test_exit_finishes_what_runs_and_its_callback(tmp_path: Path) -> None:
    ended = run(
        """
        network = aioinfer.Core().load_network(model(), "REFERENCE")
        started, may_go = threading.Event(), threading.Event()

        def callback(request, error):
            started.set()
            may_go.wait(30)
            print("callback ends", error, flush=True)

        request = network.create_infer_request()
        request.set_callback(callback)
        request.start_async(X)
        started.wait(30)
        import atexit
        atexit.register(may_go.set)  # runs before the hook that was registered on import
        print("main ends", flush=True)
        """,
        tmp_path,
    )
    assert ended.stdout == "main ends\ncallback ends None\n"
    assert ended.stderr == ""


@pytest.mark.exhaustive
def test_exit_without_a_close_is_quiet(tmp_path: Path) -> None:
    ended = run(
        """
        core = aioinfer.Core()
        networks = [core.load_network(model(), f"REFERENCE.{index}") for index in (0, 1)]
        networks.append(core.load_network(model(), "HETERO:REFERENCE.0,REFERENCE.1"))
        for network in networks:
            network.create_infer_request().infer_sync(X)
            asyncio.run(network.infer(X, deadline_s=3600))
        request = networks[0].create_infer_request()
        request.start_async(X)
        request.cancel()
        """,
        tmp_path,
    )
    assert ended.stdout + ended.stderr == ""


@pytest.mark.exhaustive
def test_an_exception_in_main_ends_the_process_with_its_traceback_alone(tmp_path: Path) -> None:
    ended = run(
        """
        network = aioinfer.Core().load_network(slow_model(), "REFERENCE")
        for _ in range(20):
            network.create_infer_request().start_async(np.ones((256, 256), np.float32))
        raise SystemExit(3)
        """,
        tmp_path,
        exit_code=3,
    )
    assert ended.stderr == ""


@FORK
def test_in_a_forked_child_what_the_parent_made_refuses(tmp_path: Path) -> None:
    run(
        """
        core = aioinfer.Core()
        network = core.load_network(model(), "REFERENCE")
        request = network.create_infer_request()
        request.infer_sync(X)
        devices = MockDevices(1)
        core.register_plugin("MOCK", devices.make_plugin)
        running = core.load_network(model(), "MOCK").create_infer_request()
        running.start_async(X)
        queue = aioinfer.AsyncInferQueue(network, 2)

        def check():
            refuses(lambda: queue.start_async(X))
            refuses(lambda: asyncio.run(queue.start(X)))
            refuses(queue.wait_all)
            refuses(lambda: asyncio.run(queue.wait_all_async()))
            refuses(queue.is_ready)
            refuses(queue.get_idle_request_id)
            refuses(lambda: queue.set_callback(None))
            refuses(lambda: core.load_network(model(), "REFERENCE"))
            refuses(lambda: core.read_model(model()))
            refuses(lambda: core.query_network(model(), "REFERENCE"))
            refuses(lambda: core.available_devices)
            refuses(lambda: core.set_config(None, {"PERF_COUNT": True}))
            refuses(lambda: core.set_config("REFERENCE", {"PERF_COUNT": True}))
            refuses(lambda: core.get_config("REFERENCE", "PERF_COUNT"))
            refuses(lambda: core.get_metric("REFERENCE", "FULL_DEVICE_NAME"))
            refuses(lambda: core.register_plugin("OTHER", MockDevices(1).make_plugin))
            refuses(lambda: core.unregister_plugin("MOCK"))
            refuses(network.create_infer_request)
            refuses(lambda: asyncio.run(network.infer(X)))
            refuses(network.statistics)
            for made in (request, running):
                refuses(lambda: made.infer_sync(X))
                refuses(lambda: made.start_async(X))
                refuses(lambda: asyncio.run(made.infer(X)))
                refuses(made.wait)
                refuses(lambda: made.wait(0))
                refuses(lambda: asyncio.run(made.wait_async()))
                refuses(made.cancel)
                refuses(lambda: made.set_tensor("x", X))
                refuses(lambda: made.get_tensor("y"))
                refuses(lambda: made.set_callback(None))
            assert network.is_closed
            assert "closed" in repr(network), network
            network.close()
            core.close()
            asyncio.run(core.aclose())

        in_child(check)
        request.infer_sync(X)  # the parent goes on
        devices[0].held.release()
        assert running.wait()
        """,
        tmp_path,
    )


@pytest.mark.exhaustive
@FORK
def test_locks_that_were_held_at_the_fork_hang_nobody_in_the_child(tmp_path: Path) -> None:
    run(
        """
        core = aioinfer.Core()
        network = core.load_network(model(), "REFERENCE")
        request = network.create_infer_request()
        request.infer_sync(X)

        def check():
            refuses(lambda: core.load_network(model(), "REFERENCE"))
            refuses(lambda: core.available_devices)
            refuses(lambda: request.infer_sync(X))
            refuses(lambda: request.set_tensor("x", X))
            refuses(request.cancel)
            refuses(network.statistics)
            network.close()
            core.close()

        # as if other threads had held them at that moment
        locks = [core._networks._lock, core._registry._lock, network._lock, request._lock]
        for lock in locks:
            lock.acquire()
        in_child(check)
        for lock in locks:
            lock.release()
        request.infer_sync(X)
        """,
        tmp_path,
    )


@pytest.mark.exhaustive
@FORK
def test_a_new_core_in_the_child_works(tmp_path: Path) -> None:
    run(
        """
        core = aioinfer.Core()
        network = core.load_network(model(), "REFERENCE")
        asyncio.run(network.infer(X, deadline_s=60))

        def check():
            with aioinfer.Core() as own:
                loaded = own.load_network(model(), "HETERO:REFERENCE.0,REFERENCE.1")
                outputs = asyncio.run(loaded.infer(X, deadline_s=60))
                np.testing.assert_array_equal(outputs["y"], np.maximum(X, 0))
                request = loaded.create_infer_request()
                told = []
                request.set_callback(lambda request, error: told.append(error))
                request.start_async(X)
                assert request.wait() and told == [None]

        in_child(check)
        in_child(check)
        """,
        tmp_path,
    )


@pytest.mark.exhaustive
@FORK
def test_a_child_that_exits_normally_runs_no_hook_of_the_parent(tmp_path: Path) -> None:
    ended = run(
        """
        core = aioinfer.Core()
        core.register_plugin("MOCK", MockDevices(1).make_plugin)
        running = core.load_network(model(), "MOCK").create_infer_request()
        running.start_async(X)
        from aioinfer.runtime.network import shutdown
        shutdown.GRACE_S = 0.1
        pid = os.fork()
        if pid:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print("child ends" if not pid else "parent ends", flush=True)
        """,
        tmp_path,
    )
    assert ended.stdout == "child ends\nparent ends\n"
    assert ended.stderr == ""


@SIGNALS
def test_an_interrupt_ends_infer_sync_and_cancels_its_run(tmp_path: Path) -> None:
    run(
        """
        devices = MockDevices(1)
        core = aioinfer.Core()
        core.register_plugin("MOCK", devices.make_plugin)
        network = core.load_network(model(), "MOCK")
        request = network.create_infer_request()

        class Interrupting(type(devices[0].held)):
            def run(self, function, after, then):
                super().run(function, after, then)
                interrupt_main()

        devices[0].held.__class__ = Interrupting
        try:
            request.infer_sync(X)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the interrupt got lost")
        assert "busy" not in repr(request), request  # it may come before the wait has begun
        devices[0].held.release()
        assert "idle" in repr(request), request
        assert network.statistics().finished_request_count == 0
        devices[0].held.__class__ = type(devices[0].held).__base__
        request.start_async(X)
        devices[0].held.release()
        assert request.wait()
        core.close()
        """,
        tmp_path,
    )


@pytest.mark.exhaustive
@SIGNALS
def test_an_interrupt_of_asyncio_run_cancels_what_is_awaited(tmp_path: Path) -> None:
    run(
        """
        devices = MockDevices(1)
        core = aioinfer.Core()
        core.register_plugin("MOCK", devices.make_plugin)
        network = core.load_network(model(), "MOCK")

        async def main():
            tasks = [asyncio.create_task(network.infer(X)) for _ in range(5)]
            await asyncio.sleep(0)
            interrupt_main()
            await asyncio.gather(*tasks)

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the interrupt got lost")
        assert devices[0].held.waiting_count == 2
        devices[0].held.release(2)
        assert devices[0].held.waiting_count == 0, "queued runs never reach the device"
        assert network.statistics().cancelled_request_count == 5
        core.close()
        """,
        tmp_path,
    )


@pytest.mark.exhaustive
@SIGNALS
@pytest.mark.parametrize("threshold_us", [0, 1_000_000], ids=["hopped", "inline"])
def test_interrupts_amid_the_start_of_runs_lose_no_slot(tmp_path: Path, threshold_us: int) -> None:
    run(
        """
        core = aioinfer.Core()
        network = core.load_network(model(), "REFERENCE", {"INLINE_THRESHOLD_US": LIMIT})
        main, chance = threading.main_thread().ident, random.Random(1)
        begun, is_over, interrupts, runs = queue.SimpleQueue(), threading.Event(), 0, 0
        sys.setswitchinterval(1e-5)  # anywhere in the runs

        def interrupt():
            while not is_over.is_set():
                try:
                    begun.get(timeout=0.2)
                except queue.Empty:  # a finalizer swallowed the last one
                    pass
                last = runs + chance.randrange(4)
                while runs < last and not is_over.is_set():
                    pass
                signal.pthread_kill(main, signal.SIGINT)

        def run():
            global interrupts, runs
            while interrupts < 200:
                try:
                    begun.put(None)
                    while True:
                        network.create_infer_request().infer_sync(X)
                        runs += 1
                except KeyboardInterrupt:
                    interrupts += 1
            signal.signal(signal.SIGINT, signal.SIG_IGN)

        sender = threading.Thread(target=interrupt)
        sender.start()
        while True:
            try:
                run()
                break
            except KeyboardInterrupt:  # it came amid counting
                pass
        is_over.set()
        sender.join()
        assert network.admission.wait_until_over(20.0), network
        assert len(network.admission._idle) == network.admission.slot_count
        core.close()
        """.replace("LIMIT", str(threshold_us)),
        tmp_path,
    )
