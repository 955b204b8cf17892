"""A model that is given to be explained: what it says of rows, and the distribution that it is."""

from typing import Any

import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.data import TableEncoding
from lexppl.data.checks import level_of
from lexppl.data.columns import CategoricalColumn, NumericColumn
from lexppl.models import Likelihood
from lexppl.models.black_box import BlackBox, Output
from lexppl.tabular.estimator_outputs import box_of_table


class OnStandardisedRows(Configured, nn.Module):
    """A predictor of rows in their own units, for standardised ones.

        y' | x' ~ distribution of (y − m) / s,    y ~ Φ(y | f(mean + scale · x')).

    Args:
        predictor: a module from x, in its own units, to the distribution of y.
        mean: of each column that it reads, `(P,)`.
        scale: of each of them, `(P,)`.
        target_mean: m, in the units of y; 0 for labels.
        target_scale: s, in the same; 1 for labels.
        places: which of the D features x' each column is; None where P = D and they stand in order.

    Example:
        >>> from lexppl.models import NormalLikelihood, Predictor
        >>> given = Predictor(nn.Identity(), NormalLikelihood(2.0))
        >>> OnStandardisedRows(given, [5.0], [2.0], 1.0, 2.0)(torch.tensor([[1.0]])).mean
        tensor([3.])
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        predictor: nn.Module,
        mean: Any,
        scale: Any,
        target_mean: float = 0.0,
        target_scale: float = 1.0,
        places: Any = None,
    ) -> None:
        super().__init__()
        self.places = None if places is None else [int(place) for place in places]
        self.predictor = predictor
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.get_default_dtype()))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.get_default_dtype()))
        self.target_mean, self.target_scale = float(target_mean), float(target_scale)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments; without `places` where all columns stand in order, as files
        had it before there were any."""
        given = super().config()
        return {name: value for name, value in given.items() if name != "places" or value}

    @property
    def likelihood(self) -> Likelihood:
        """That of the predictor."""
        given: Likelihood = self.predictor.likelihood  # type: ignore[assignment]
        return given

    def forward(self, x: Tensor) -> Any:
        read = x if self.places is None else x[..., self.places]
        distribution = self.predictor(read * self.scale + self.mean)
        if self.likelihood.discrete:
            return distribution
        center = (distribution.mean - self.target_mean) / self.target_scale
        return dist.Normal(center, distribution.stddev / self.target_scale)


def box_of_rows(
    model: Any, table: Any, classes: NDArray[Any] | None, output: Output | None = None
) -> tuple[BlackBox, Tensor, Tensor]:
    """A model as a black box, the rows of a table as it takes them, and the places of those that it
    may be asked of: all but what `max_calls` leaves out.

    Args:
        model: a fitted estimator, a torch module, a torch predictor, or a black box of one.
        table: rows as they were given to `fit`.
        classes: the C labels, or None for responses.
        output: what a module without a likelihood returns of labels.

    Raises:
        ValueError, TypeError: as :func:`lexppl.tabular.estimator_outputs.box_of_table`; a module
            of labels of which it is not known what it returns; a model for the other task, or with
            labels other than `classes`.
    """
    names, labels, given = None, None, model
    if isinstance(model, BlackBox):
        model, output = model.model, output or model.options.get("output")
    own_output = isinstance(model, nn.Module) and not has_likelihood(model)
    if own_output and classes is None:
        output = "response"
    elif own_output and output is None:
        raise TypeError(
            f"model is a {type(model).__name__}, which does not say what its outputs mean: give "
            "model_output='logits' or 'probabilities', or "
            "lexppl.models.Predictor(network, CategoricalLikelihood())"
        )
    if classes is not None:
        names = [level_of(label) for label in classes]
        own = getattr(model, "classes_", None)
        # By name: a model's labels are those of y, and never places among them.
        labels = None if own is None else [level_of(label) for label in own]
    box, x = box_of_table(given, table, classes=names, labels=labels, output=output)
    if classes is None and box.task == "classification":
        raise ValueError(f"model, a {type(model).__name__}, is for labels; y is a real response")
    return box, x, box.affordable(x)


def outputs_of(box: BlackBox, x: Tensor) -> Tensor:
    """Outputs of a model of rows in their own units, `(N, C)` in the order of its labels or `(N,)`.

    Raises:
        ValueError: a row on which it fails, or outputs that are none; as
            `BlackBox.targets`.
    """
    try:
        return box.targets(x).cpu().double()
    except ValueError as error:
        if not (isinstance(box.model, nn.Module) and isinstance(error.__cause__, RuntimeError)):
            raise
        raise ValueError(
            f"model: {error}. It has the rows of X as they are, {tuple(x.shape)} of {x.dtype}, "
            "with the columns in their order and units"
        ) from error


def has_likelihood(model: Any) -> bool:
    """Whether a torch module says which distribution it gives, and so can be masked itself."""
    return isinstance(getattr(model, "likelihood", None), Likelihood)


def predictor_on_standardised_rows(predictor: nn.Module, encoding: TableEncoding) -> nn.Module:
    """A torch predictor of rows in their own units as one of encoded rows.

    Raises:
        TypeError: columns of levels, which a torch predictor has no units for; a response whose
            distribution is not normal.
    """
    units: list[tuple[float, float, int]] = []
    for column in encoding.columns:
        first = encoding.feature_names.index(column.feature_names[0])
        if isinstance(column, NumericColumn):
            units.append((column.mean, column.scale, first))
        elif isinstance(column, CategoricalColumn) and set(column.levels) == {"False", "True"}:
            # A boolean is 0 or 1 to the module, which is its indicator of True.
            units.append((0.0, 1.0, first + column.levels.index("True")))
        else:
            raise TypeError(
                "model is a torch predictor, which takes numbers, and column "
                f"{column.name!r} is not one; encode it first, and give groups= for its indicators"
            )
    mean, scale = [mean for mean, _, _ in units], [scale for _, scale, _ in units]
    places = [place for _, _, place in units]
    target = encoding.target
    read = None if places == list(range(len(encoding.feature_names))) else places
    if target.class_names is not None:
        return OnStandardisedRows(predictor, mean, scale, places=read)
    with torch.no_grad():
        given = next(predictor.parameters(), torch.empty(()))
        distribution = predictor(given.new_tensor([mean]))
    if not isinstance(distribution, dist.Normal):
        raise TypeError(
            f"model must have a normal distribution of the response; it has {distribution}"
        )
    return OnStandardisedRows(predictor, mean, scale, target.mean, target.scale, read)
