"""Clients that mean harm, certificates, and signals: the command on real sockets."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from aioinfer.serving.protocol.limits import Limits
from unit.serving.models import DIGITS
from unit.serving.serve_process import Serving, serve

GET = b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v2/models/no/infer HTTP/1.1\r\nhost: x\r\n"
LATE_S = Limits().head_s + 10

LIVE = "/inference.GRPCInferenceService/ServerLive"


def connect(serving: Serving) -> socket.socket:
    host, port = serving.host.split(":")
    return socket.create_connection((host, int(port)), timeout=LATE_S)


def read_to_the_end(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def read_answer(connection: socket.socket) -> bytes:
    """Read an answer whose body is a JSON object without others in it."""
    told = b""
    while not told.endswith(b"}"):
        piece = connection.recv(65536)
        assert piece, told
        told += piece
    return told


def test_connections_that_say_nothing_more_are_closed() -> None:
    """Whatever comes after an answer, it does not keep a connection for ever."""
    cases = [
        (GET, b"\r\n"),
        (GET, b"GET /v"),
        (POST + b"content-length: 1000\r\n\r\n", b"a"),
        (POST + b"transfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        (b"", b"GET /v"),
        (b"", b""),
    ]
    with serve(DIGITS, "-d", "REFERENCE", "--max-connections", str(len(cases))) as serving:
        opened = [connect(serving) for _ in cases]
        for connection, (first, _) in zip(opened, cases, strict=True):
            connection.sendall(first)
            if first:
                read_answer(connection)
        with connect(serving) as refused:
            assert read_to_the_end(refused).startswith(b"HTTP/1.1 503 ")
        for connection, (_, rest) in zip(opened, cases, strict=True):
            connection.sendall(rest)
        for connection in opened:
            with connection:
                assert read_to_the_end(connection)[:13] in (b"", b"HTTP/1.1 408 ")
        with connect(serving) as served:
            served.sendall(GET)
            assert served.recv(65536).startswith(b"HTTP/1.1 200 ")


def squares(path: Path, count: int) -> Path:
    """``y`` is a power of the matrix ``x``, by so many products: as slow as is wanted."""
    names = ["x", *(f"product_{number}" for number in range(count - 1)), "y"]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", [names[number], "x"], [names[number + 1]])
            for number in range(count)
        ],
        "squares",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "n"])],
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def infer_head(side: int) -> bytes:
    size = np.zeros((side, side), np.float32).nbytes
    entry = {"name": "x", "datatype": "FP32", "shape": [side, side]}
    text = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": size}}]}).encode()
    return (
        f"POST /v2/models/squares/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text) + size}"
        f"\r\ninference-header-content-length: {len(text)}\r\n\r\n"
    ).encode() + text


@pytest.mark.exhaustive
def test_a_second_signal_ends_it_though_a_request_is_under_way(tmp_path: Path) -> None:
    side = 1000
    model = squares(tmp_path / "squares.onnx", 1000)
    with serve(model, "-d", "REFERENCE", "--drain", "1000") as serving, connect(serving) as client:
        client.sendall(infer_head(side) + bytes(4 * side * side))
        serving.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            serving.process.wait(2)
        assert serving.end(signal.SIGTERM) == 0


@pytest.mark.exhaustive
def test_what_the_drain_cuts_off_is_503(tmp_path: Path) -> None:
    """A run that takes too long, and a body that has not come whole."""
    side = 1000
    model = squares(tmp_path / "squares.onnx", 1000)
    options = ("-d", "REFERENCE", "--drain", "1")
    with serve(model, *options) as serving, connect(serving) as runs, connect(serving) as waits:
        runs.sendall(infer_head(side) + bytes(4 * side * side))
        waits.sendall(infer_head(side))
        runs.settimeout(60)
        serving.process.send_signal(signal.SIGTERM)
        assert read_to_the_end(runs).startswith(b"HTTP/1.1 503 ")
        assert read_to_the_end(waits).startswith(b"HTTP/1.1 503 ")
        assert serving.process.wait(60) == 0


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_serves_https_and_grpc(tmp_path: Path) -> None:
    grpc = pytest.importorskip("grpc")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    where = ["-keyout", str(key), "-out", str(certificate)]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *where, *names], check=True, capture_output=True)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    trusted = ssl.create_default_context(cafile=str(certificate))
    with serve(DIGITS, "-d", "REFERENCE", "--grpc-port", "0", *options) as serving:
        place = serving.addresses[1].partition("://")[2]
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        with grpc.secure_channel(place, credentials) as channel:
            assert channel.unary_unary(LIVE)(b"", timeout=30) == b"\x08\x01"
        with grpc.insecure_channel(place) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(LIVE)(b"", timeout=30)
        assert serving.url.startswith("https://")
        with urllib.request.urlopen(f"{serving.url}/v2", timeout=30, context=trusted) as reply:
            assert b"aioinfer" in reply.read()
        assert serving.end(signal.SIGTERM) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("text", [None, "nothing"])
def test_a_certificate_that_is_none_ends_it_with_1(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "certificate.pem"
    if text is not None:
        path.write_text(text)
    options = ("--tls-certificate", str(path), "--tls-key", str(path))
    told = pytest.raises(AssertionError, match=r"ended with 1: (?s:.*)error: ")
    with told, serve(DIGITS, "-d", "REFERENCE", *options):
        pass
