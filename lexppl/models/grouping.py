"""From mask entries to features."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lexppl.configured import Configured


class Grouping(Configured, nn.Module):
    """One mask entry for several features: feature `d` is kept where entry `groups[d]` is.

    Args:
        groups: for each of the D features the index of its entry, 0 … G−1; every entry has a
            feature.
        names: a name for each of the G entries.

    Raises:
        ValueError: indices that leave an entry out, or names of another number or not unique.

    Example:
        >>> color = Grouping([0, 1, 1, 1], names=["age", "colour"])
        >>> color(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([[1., 0., 0., 0.],
                [0., 1., 1., 1.]])
    """

    index: Tensor

    def __init__(self, groups: Sequence[int], names: Sequence[str] | None = None) -> None:
        super().__init__()
        groups = [int(g) for g in groups]
        count = max(groups, default=-1) + 1
        if not groups or sorted(set(groups)) != list(range(count)):
            raise ValueError(
                "groups must give each feature an entry 0 … G−1 and leave no entry out; "
                f"the entries given are {sorted(set(groups))}"
            )
        if names is None:
            names = [f"x{g + 1}" for g in range(count)]
        if len(names) != count or len(set(names)) != count:
            raise ValueError(f"names must be {count} different names; they are {list(names)}")
        self.names = tuple(names)
        self.register_buffer("index", torch.tensor(groups), persistent=False)
        self._identity = groups == list(range(count))

    @classmethod
    def identity(cls, features: int, names: Sequence[str] | None = None) -> "Grouping":
        """One entry for each feature."""
        return cls(range(features), names)

    @property
    def groups(self) -> tuple[int, ...]:
        """The entry of each feature, `(D,)`."""
        return tuple(self.index.tolist())

    @property
    def entries(self) -> int:
        """G."""
        return len(self.names)

    @property
    def features(self) -> int:
        """D."""
        return len(self.index)

    def forward(self, mask: Tensor) -> Tensor:
        """`(…, G)` to `(…, D)`."""
        return mask if self._identity else mask.index_select(-1, self.index)
