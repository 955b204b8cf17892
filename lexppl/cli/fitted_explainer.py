"""The explainer of a run, and what it was fitted with."""

from dataclasses import dataclass

from torch import Tensor

from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor
from lexppl.inference import FitResult
from lexppl.tabular.table_fit import TableFit


@dataclass(frozen=True, eq=False)
class Fitted:
    """An explainer, and what it was fitted with.

    Args:
        table: the fit with its plan, and what its predictor was preferred to.
        outputs: what the black box says of every row, or None.
        full: the predictor that sees everything, where it was fitted first.
        groups: of the features that are judged together.
        told: what was warned of the posterior of its weights.
    """

    table: TableFit
    outputs: Tensor | None
    full: FittedPredictor | None
    groups: FeatureGroups
    told: tuple[str, ...] = ()

    @property
    def result(self) -> FitResult:
        return self.table.result
