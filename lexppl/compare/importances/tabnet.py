"""TabNet: a network that attends to features, and says to which."""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.argument_checks import fraction, int_at_least
from lexppl.compare.extra import library
from lexppl.compare.importances.checks import check_tables
from lexppl.compare.importances.grouped import grouped_importances
from lexppl.compare.importances.random_state import all_seeded
from lexppl.models import Grouping


@dataclass(frozen=True, eq=False)
class FittedTabNet:
    """A fitted `TabNetClassifier` or `TabNetRegressor`: see :func:`fit_tabnet`.

    Args:
        network: the library's estimator.
        features: D.
    """

    network: Any
    features: int

    def importances(self, x: Tensor, grouping: Grouping | None = None) -> Tensor:
        """The masks of `explain`, summed over TabNet's steps by what each step decides.

        Args:
            x: rows, `(B, D)`.
            grouping: which columns make a mask entry; their masks are summed.

        Returns:
            `(B, G)`, at least 0.

        Raises:
            ValueError, TypeError: rows unlike those of the fit.
        """
        check_tables(grouping, x=x)
        if x.shape[1] != self.features:
            raise ValueError(f"TabNet was fitted on {self.features} features; x has {x.shape[1]}")
        with all_seeded(0, x.device):
            masks, _ = self.network.explain(x.detach().float().cpu().numpy())
        return grouped_importances(torch.from_numpy(np.asarray(masks)).to(x), grouping)


def fit_tabnet(
    x: Tensor,
    y: Tensor,
    *,
    epochs: int = 100,
    batch_size: int = 1024,
    patience: int = 10,
    valid: float = 0.2,
    seed: int = 0,
    **settings: Any,
) -> FittedTabNet:
    """Fit TabNet, which predicts y and explains itself, with the library's defaults.

    Args:
        x: training rows, `(N, D)`.
        y: labels (of an integer type) or responses (floating), `(N,)`.
        epochs: at most so many.
        batch_size: rows of a step.
        patience: epochs without improvement on the validation rows that end the fit.
        valid: share of the rows that validate.
        seed: of the division, of initial weights and batches. Global random state is left alone.
        settings: of `TabNetClassifier`, such as `n_d`, `n_a`, `n_steps`, `gamma`, `lambda_sparse`.

    Raises:
        ImportError: without the `compare` extra.
        ValueError, TypeError: rows or counts that do not fit.

    Source:
        Arik and Pfister 2021; the library `pytorch_tabnet`, which computes it.

    Example:
        >>> rows = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> fitted = fit_tabnet(rows, (rows[:, 0] > 0).long(), epochs=2)
        >>> fitted.importances(rows[:5]).shape
        torch.Size([5, 3])
    """
    check_tables(None, x=x)
    epochs = int_at_least("epochs", epochs)
    batch_size = int_at_least("batch_size", batch_size)
    patience = int_at_least("patience", patience)
    if y.shape != x.shape[:1]:
        raise ValueError(f"y must have shape ({len(x)},), one a row; it has {tuple(y.shape)}")
    held = round(len(x) * fraction("valid", valid, of="the rows"))
    if not 1 <= held < len(x) - 1:
        raise ValueError(
            f"valid must leave rows to fit and to validate; it is {valid!r} of {len(x)} rows"
        )
    models = library("pytorch_tabnet.tab_model")
    labels = not y.is_floating_point()
    estimator = models.TabNetClassifier if labels else models.TabNetRegressor
    rows = x.detach().float().cpu().numpy()
    target = y.detach().cpu().numpy() if labels else y.detach().float().cpu().numpy()[:, None]
    order = np.random.default_rng(seed).permutation(len(x))
    validating, fitting = order[:held], order[held:]
    if labels:
        # The library refuses validation labels that it has not fitted.
        validating = validating[np.isin(target[validating], target[fitting])]
    size = min(batch_size, len(fitting))
    with all_seeded(seed, x.device), warnings.catch_warnings(), _silenced():
        warnings.simplefilter("ignore")
        network = estimator(seed=seed, verbose=0, device_name=x.device.type, **settings)
        network.fit(
            rows[fitting],
            target[fitting],
            eval_set=[(rows[validating], target[validating])],
            max_epochs=epochs,
            patience=patience,
            batch_size=size,
            virtual_batch_size=min(128, size),
            # Its batch normalisation cannot take one row alone.
            drop_last=len(fitting) % size == 1,
            compute_importance=False,
        )
    return FittedTabNet(network, x.shape[1])


@contextlib.contextmanager
def _silenced() -> Any:
    """The library prints where it stopped, whatever `verbose` is."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
