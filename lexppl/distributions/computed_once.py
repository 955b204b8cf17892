"""What is computed of a distribution's rows when it is first needed, and kept."""

from collections.abc import Callable
from typing import Any

import torch


class ComputedOnce:
    """Values by name, each computed once, and anew where a gradient is first asked of it."""

    def __init__(self) -> None:
        self._computed: dict[str, tuple[bool, Any]] = {}

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """The value of that name.

        Args:
            name: of the value.
            compute: makes it.
        """
        graph = torch.is_grad_enabled()
        known = self._computed.get(name)
        # What was computed without a graph (in a sampler, say) must not cut later gradients.
        if known is None or (graph and not known[0]):
            known = (graph, compute())
            self._computed[name] = known
        return known[1]
