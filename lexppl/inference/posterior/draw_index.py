"""Which draw of a posterior a program is being run for."""

from typing import Any

from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import effectful


@effectful(type="draw_index")
def draw_index() -> tuple[int, int] | None:
    """The draw d of D that the running program is to give; None where nobody says.

    Example:
        >>> with DrawIndex(3, 10):
        ...     draw_index()
        (3, 10)
        >>> draw_index() is None
        True
    """
    return None


class DrawIndex(Messenger):
    """Tell :func:`draw_index` to the guide that runs inside this context.

    Args:
        draw: d, from 0.
        draws: D.
    """

    def __init__(self, draw: int, draws: int) -> None:
        super().__init__()
        self._value = (draw, draws)

    def _pyro_draw_index(self, msg: Any) -> None:
        if not msg["done"]:
            msg["value"], msg["done"] = self._value, True
