"""Rows of a fit with a code for each column of levels, in place of an indicator for each level."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.inference import FitResult, LeaveOneOut, Stage, System
from lexppl.models import LEX, MLP, CopulaImputer, Grouping, MarginalImputer
from lexppl.models.imputers.copula import indicator_columns
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.threads import own_random_state

LEAST_LEVELS = 4
"""Of a column that is read by its code; fewer indicators cost no more."""


@dataclass(frozen=True)
class LevelColumns:
    """Which of the D features of a table are the indicators of one column's levels.

    Args:
        numbers: the other features.
        blocks: the features of each column of levels, in the order of the levels.
    """

    numbers: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, x: Tensor, groups: tuple[int, ...]) -> LevelColumns:
        """Entries of :data:`LEAST_LEVELS` features or more, of which each row has one, and as 1.

        Args:
            x: rows `(N, D)`.
            groups: the entry of each feature.

        Example:
            >>> x = torch.tensor([[0.5, 1, 0, 0, 0], [2.0, 0, 0, 1, 0]])
            >>> LevelColumns.of(x, (0, 1, 1, 1, 1))
            LevelColumns(numbers=(0,), blocks=((1, 2, 3, 4),))
        """
        blocks = [c for c in indicator_columns(x, groups) if len(c) >= LEAST_LEVELS]
        held = {feature for block in blocks for feature in block}
        return cls(tuple(f for f in range(len(groups)) if f not in held), tuple(blocks))

    @property
    def features(self) -> int:
        """D."""
        return len(self.numbers) + sum(map(len, self.blocks))

    def coded(self, x: Tensor) -> Tensor:
        """The numbers of rows, and a code for each column of levels: `(N, D)` to `(N, C)`."""
        codes = [x[:, list(block)].argmax(-1).to(x.dtype) for block in self.blocks]
        return torch.cat([x[:, list(self.numbers)], *(code[:, None] for code in codes)], -1)

    def coded_imputer(
        self, imputer: MarginalImputer | CopulaImputer
    ) -> MarginalImputer | CopulaImputer:
        """The same imputer of coded rows."""
        if isinstance(imputer, MarginalImputer):
            return MarginalImputer(self.coded(imputer.reference))
        place = {feature: c for c, feature in enumerate(self.numbers)}
        codes = {block: (len(self.numbers) + c,) for c, block in enumerate(self.blocks)}
        columns = [codes.get(c) or tuple(place[f] for f in c) for c in imputer.columns]
        return imputer.with_columns(columns)

    def groups(self, groups: tuple[int, ...]) -> list[int]:
        """The entry of each of the C coded columns."""
        return [groups[f] for f in self.numbers] + [groups[block[0]] for block in self.blocks]


class LevelsLinear(nn.Module):
    """A linear layer that reads levels by rows of a table: `(…, C)` to `(…, H)`.

    With W the weights of the layer on indicators, `W x + b = W_numbers x + Σ_c W[:, level_c] + b`.

    Args:
        layer: on the D features.
        columns: of the features.
    """

    offsets: Tensor

    def __init__(self, layer: nn.Linear, columns: LevelColumns) -> None:
        super().__init__()
        self.columns = columns
        weight = layer.weight.detach()
        levels = [feature for block in columns.blocks for feature in block]
        self.numbers = nn.Parameter(weight[:, list(columns.numbers)].clone())
        # Contiguous, as fused Adam pairs a parameter with its gradient by their places in memory.
        self.levels = nn.Parameter(weight[:, levels].T.contiguous())
        self.bias = nn.Parameter(layer.bias.detach().clone())
        sizes = torch.tensor([0, *(len(block) for block in columns.blocks[:-1])])
        self.register_buffer("offsets", sizes.cumsum(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        count = len(self.columns.numbers)
        levels = nn.functional.embedding(x[..., count:].long() + self.offsets, self.levels)
        return nn.functional.linear(x[..., :count], self.numbers, self.bias) + levels.sum(-2)

    def plain(self) -> nn.Linear:
        """The layer on indicators with these weights."""
        width, columns = len(self.bias), self.columns
        layer = nn.Linear(columns.features, width, dtype=self.bias.dtype, device=self.bias.device)
        levels = [feature for block in columns.blocks for feature in block]
        with torch.no_grad():
            layer.weight[:, list(columns.numbers)] = self.numbers
            layer.weight[:, levels] = self.levels.T
            layer.bias.copy_(self.bias)
        return layer


@dataclass(frozen=True)
class CodedFit:
    """A system of LEX on rows with codes, which is the same function with the same gradients.

    Args:
        system: on the D features.
        columns: of the features.
        grouping: of the features.
        imputer: of the features.
    """

    system: System
    columns: LevelColumns
    grouping: Grouping
    imputer: MarginalImputer | CopulaImputer

    @classmethod
    def of(cls, system: System, imputer: Any, rows: EncodedRows) -> CodedFit | None:
        """The system on rows with codes; None where no column has levels, or where a program is
        another than a LEX that draws hidden values from rows and scores masks by their draws."""
        if rows.markers or type(imputer) not in (MarginalImputer, CopulaImputer):
            return None
        columns = LevelColumns.of(rows.train[0], rows.grouping.groups)
        with own_random_state():
            terms = [term for stage in system.build() for term in stage.terms]
        fits = all(
            type(term.model) is LEX
            and isinstance(getattr(term.objective, "estimator", None), LeaveOneOut)
            and all(isinstance(one, MLP) for one in _networks(term.model))
            for term in terms
        )
        return cls(system, columns, rows.grouping, imputer) if columns.blocks and fits else None

    def coded(self) -> System:
        """The system of programs that read coded rows."""
        imputer = self.columns.coded_imputer(self.imputer)
        grouping = Grouping(self.columns.groups(self.grouping.groups), self.grouping.names)

        def build() -> list[Stage]:
            stages = list(self.system.build())
            models: dict[int, Any] = {id(t.model): t.model for s in stages for t in s.terms}
            for model in models.values():
                model.imputer, model.grouping = imputer, grouping
                for network in _networks(model):
                    network.layers[0] = LevelsLinear(network.layers[0], self.columns)
                    network.inputs = len(self.columns.numbers) + len(self.columns.blocks)
            return stages

        return replace(self.system, build=build)

    def plain(self, result: FitResult) -> FitResult:
        """The fit with programs on the D features."""
        for model in result.models:
            model.imputer, model.grouping = self.imputer, self.grouping
            for network in _networks(model):
                network.layers[0] = network.layers[0].plain()
                network.inputs = self.columns.features
        return replace(result, event_shape=(self.columns.features,), modules=[])


def _networks(model: LEX) -> list[Any]:
    """The networks that read rows: of the selector and of each predictor."""
    selector: Any = model.selector
    predictors = getattr(model.predictor, "predictors", [model.predictor])
    return [
        getattr(selector, "selector", selector).network,
        *(getattr(predictor, "network", None) for predictor in predictors),
    ]
