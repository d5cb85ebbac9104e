"""The program of the helper process: calls of onnx's C++ parts, protos in and out by pipes.

It is run by its path and never imported, so that it loads onnx and nothing of aioinfer. Arguments:
the caller's ``sys.path`` as JSON, and its process number. A request is ``<BqQQ``: which call, its
argument, how many seconds of CPU it may take, the size of the proto that follows. An answer is
``<?Q``: whether it went well, the size of the proto, or of the error's text, that follows. The
first answer says that onnx is loaded; until then it writes to its standard error why it cannot be.
It ends when its input does, with its parent, or after a minute without a request.
"""

import contextlib
import json
import os
import select
import signal
import struct
import sys
import time

MEMORY_LIMIT_BYTES = 4 << 30  # a damaged length makes shape inference ask for all there is
IDLE_LIMIT_S = 60.0
READY = b"onnx is loaded"
REQUEST = struct.Struct("<BqQQ")


def main() -> None:
    """Answer requests until there are no more."""
    sys.path[:] = json.loads(sys.argv[1])
    replies = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # the C++ parts print warnings
    limit_memory()
    import onnx
    import onnx.inliner
    import onnx.shape_inference
    import onnx.version_converter

    calls = (
        lambda model, data_prop: onnx.shape_inference.infer_shapes(
            model, data_prop=bool(data_prop)
        ),
        onnx.version_converter.convert_version,
        lambda model, _: onnx.inliner.inline_local_functions(model),
    )
    end_with_parent(int(sys.argv[2]))
    os.dup2(nowhere, 2)
    send(replies, True, READY)
    while header := next_header():
        index, argument, cpu_s, size = REQUEST.unpack(header)
        model = onnx.ModelProto()
        try:
            model.ParseFromString(sys.stdin.buffer.read(size))
            limit_cpu(cpu_s)
            answer = calls[index](model, argument).SerializeToString()
        except Exception as error:
            send(replies, False, f"{error or type(error).__name__}".encode())
        else:
            send(replies, True, answer)


def next_header() -> bytes:
    """Wait for a request; empty when there are no more."""
    if os.name == "posix" and not select.select([0], [], [], IDLE_LIMIT_S)[0]:
        return b""
    return sys.stdin.buffer.read(REQUEST.size)


def send(replies: object, is_good: bool, content: bytes) -> None:
    """Write one answer."""
    replies.write(struct.pack("<?Q", is_good, len(content)) + content)  # type: ignore[attr-defined]
    replies.flush()  # type: ignore[attr-defined]


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when the other end of its standard error is closed.

    That is when the parent is gone, also while a call holds the GIL. PR_SET_PDEATHSIG would end it
    with the thread that started it. Neither side reads that pipe, so nothing else raises the
    signal.
    """
    if not sys.platform.startswith("linux"):
        return
    import fcntl

    lifeline = os.dup(2)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if os.getppid() != parent:
        sys.exit(0)


def limit_cpu(seconds: int) -> None:
    """Make the kernel end this process by SIGXCPU after ``seconds`` more of CPU."""
    if os.name == "posix":
        import resource

        used_s = int(time.process_time()) + 1
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        wanted = used_s + seconds
        soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CPU, (soft, most))


def limit_memory() -> None:
    """Bound this process's memory, and have the system kill it first where the machine has none."""
    if os.name == "posix":
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


if __name__ == "__main__":
    main()
