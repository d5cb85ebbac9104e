"""The BATCH plugin: one device, whose requests share runs while it is busy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from ...errors import DeviceError, NotSupportedError
from ...runtime.blobs.network_record import NetworkRecord
from ...runtime.blobs.reader import Blob
from ...runtime.devices.device_name import DeviceEntry
from ...runtime.devices.virtual_plugin import VirtualPlugin
from ...runtime.graph import Model
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.states.state_pairs import find_pairs
from ...runtime.passes import SupportMap
from ...runtime.plans.batch_axis import BatchAxis
from ...runtime.properties.properties import Configuration, Property
from .batch_record import check_batch, read_batch
from .executable_network import BatchNetwork
from .find_padding import find_padding, imported_padding, refuse_alone
from .length_padding import LengthPadding
from .open_batch import with_open_batch
from .properties import (
    ALLOW_UNBATCHED,
    AUTO_BATCH_TIMEOUT,
    LENGTH_BUCKETS,
    LENGTH_PROPERTIES,
)

__all__ = ["DEFAULT_ROWS", "BatchPlugin"]

DEFAULT_ROWS = 32
"""What ``BATCH:CPU`` means without a number in parentheses."""


class BatchPlugin(VirtualPlugin):
    """Joins requests for one device; ``BATCH:CPU(16)`` runs up to 16 rows at a time.

    Streams and threads are properties of the device; give them through DEVICE_PROPERTIES.
    """

    standard_properties: ClassVar[Sequence[Property[Any]]] = tuple(
        declared
        for declared in VirtualPlugin.standard_properties
        if declared.key not in ("NUM_STREAMS", "INFERENCE_NUM_THREADS", "INLINE_THRESHOLD_US")
    )
    properties: ClassVar[Sequence[Property[Any]]] = (
        *VirtualPlugin.properties,
        AUTO_BATCH_TIMEOUT,
        ALLOW_UNBATCHED,
        *LENGTH_PROPERTIES,
    )
    takes_mapped_constants: ClassVar[bool] = True

    def query_network(self, model: Model, config: Configuration) -> SupportMap:
        device = self._entry(config).device
        return self.core.query_network(model, device, self.device_config(device, config))

    def load_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        entry = self._entry(config)
        most_rows = entry.count or DEFAULT_ROWS
        values = self.inner_config(entry.device, config)
        if find_pairs(model, config):
            raise NotSupportedError(
                f"{self.name} cannot join requests for model {model.name!r}, which keep a state "
                f"each (STATE); load it on {entry.device} itself"
            )
        found = self._batch_of(model, config)
        if isinstance(found, str) and config[ALLOW_UNBATCHED]:
            device_config = self.device_config(entry.device, config)
            alone = self.core.load_network(model, entry.device, device_config)
            alone.batching_refusal = found
            return alone
        if isinstance(found, str):
            raise NotSupportedError(
                f"{self.name} cannot join requests for model {model.name!r}: {found}. Load it on "
                f"{entry.device} itself, where requests run one by one"
            )
        opened, axis, padding = found
        if opened is not model:
            opened.is_disposable = True
        compiled = self.core.load_network(opened, entry.device, values)
        network = BatchNetwork(compiled, axis, most_rows, config, self.core, padding)
        logging.getLogger(f"aioinfer.{config.device}").info(
            "model %r: up to %d rows share a run of %s", model.name, most_rows, compiled.device
        )
        return network

    def import_network(
        self, blob: Blob, record: NetworkRecord, config: Configuration
    ) -> ExecutableNetwork:
        entry = self._entry(config)
        values = self.inner_config(entry.device, config)
        axis, axes = read_batch(blob.json("batch"))
        inner = blob.under("compiled")
        compiled = self.core.import_part(inner, entry.device, values, name=record.name)
        check_batch(axis, axes, compiled.inputs, compiled.outputs)
        padding = imported_padding(axes, compiled.inputs, config)
        most_rows = entry.count or DEFAULT_ROWS
        return BatchNetwork(compiled, axis, most_rows, config, self.core, padding)

    def _batch_of(
        self, model: Model, config: Configuration
    ) -> tuple[Model, BatchAxis, LengthPadding | None] | str:
        """Return the model with an open batch, and how its requests are joined; or why not."""
        found = with_open_batch(model)
        if isinstance(found, str):
            return found
        if not config[LENGTH_BUCKETS]:
            refuse_alone(config)
            return *found, None
        padding = find_padding(*found, config)
        return padding if isinstance(padding, str) else (*found, padding)

    def _entry(self, config: Configuration) -> DeviceEntry:
        """Return the device and its number of rows; raises DeviceError unless there is one."""
        entries = self.priorities(config)
        if len(entries) != 1:
            named = ", ".join(entry.device for entry in entries) or "none"
            raise DeviceError(
                f"{self.name} joins requests for one device, and {named} is given; name one, with "
                f"the most rows of a run in parentheses: {self.name}:CPU(16)"
            )
        self.check_device_properties(config, [entries[0].device])
        return entries[0]
