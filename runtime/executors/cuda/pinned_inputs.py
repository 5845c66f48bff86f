"""A buffer of step inputs that the device copies by itself, and when it has done so."""

from typing import Any

from ...manifest import Manifest
from .driver import call
from .inputs import StepInputs
from .resources import Resources


class PinnedInputs:
    """`arrays` in pinned memory. Between `used` and the end of `wait` they must stay as they are."""

    def __init__(self, manifest: Manifest, resources: Resources) -> None:
        kv, long_rope_after = manifest.kv_cache, manifest.model.long_rope_after
        self.arrays = StepInputs(manifest.limits, kv.block_size, len(kv.groups), long_rope_after, resources.pinned)
        self._event, self._is_used = resources.event(), False

    def used(self, stream: Any) -> None:
        """Whatever the stream was told until now may use them."""
        call("cuEventRecord", self._event, stream)
        self._is_used = True

    def wait(self) -> None:
        """Return when that is done. Raises DriverError where it failed."""
        if self._is_used:
            call("cuEventSynchronize", self._event)
