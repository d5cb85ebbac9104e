"""One load: the model, what is asked, and what is known of its speed."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...runtime.graph import Model
from ...runtime.network.states.state_pairs import find_pairs
from ...runtime.properties.properties import INPUT_SHAPES, OUTPUT_LOCATION, Configuration
from .choice import Choice
from .speed_memory import SpeedMemory, model_key

__all__ = ["Load"]


@dataclass
class Load:
    """One load: the model, what is asked, and what is known of its speed."""

    model: Model
    config: Configuration
    choice: Choice
    is_disposable: bool
    memory: SpeedMemory | None = None
    times_s: dict[str, float] = field(default_factory=dict)
    _key: str = ""

    @property
    def may_move(self) -> bool:
        """What requests keep, and outputs that stay, lie in the memory of one device."""
        has_locations = bool(self.config.value_or_default(OUTPUT_LOCATION))
        return not has_locations and not find_pairs(self.model, self.config)

    def remember(self, memory: SpeedMemory) -> None:
        """Look up what is known of the model."""
        kept = {key: str(self.config[key]) for key in (INPUT_SHAPES.key, "PERFORMANCE_HINT")}
        self.memory, self._key = memory, model_key(self.model, kept)
        self.times_s = memory.times_s(self._key)

    def note(self, device: str, time_s: float) -> None:
        """Remember what was measured."""
        self.times_s[device] = time_s
        if self.memory is not None:
            self.memory.note(self._key, {device: time_s})
