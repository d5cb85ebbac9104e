"""Runs on MOCK.0, which wait until the test lets them end."""

from __future__ import annotations

import numpy as np

import aioinfer
from aioinfer.testing import MockDevices

__all__ = ["X", "finish", "started"]

X = np.array([[-1, 2, 3]], np.float32)


def started(network: aioinfer.ExecutableNetwork, count: int) -> list[aioinfer.InferRequest]:
    """Make requests and start them with X, one after the other."""
    requests = [network.create_infer_request() for _ in range(count)]
    for request in requests:
        request.start_async(X)
    return requests


def finish(held: MockDevices) -> None:
    """End all runs, with those that begin meanwhile."""
    while any(device.held.waiting_count for device in held.devices):
        for device in held.devices:
            device.held.release(device.held.waiting_count)
