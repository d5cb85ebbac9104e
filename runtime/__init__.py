"""The runtime: models, devices, networks and requests."""

from ..errors import AioInferError as AioInferError  # first: outside the package this must fail
