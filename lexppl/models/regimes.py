"""The four ways to train an explainer: what y it observes, and whether its predictor learns."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lexppl.argument_checks import one_of, refuse_not_finite, shaped
from lexppl.choices.settings import Regime
from lexppl.configured import Configured
from lexppl.models.black_box import BlackBox
from lexppl.models.black_box import black_box as wrapped


def regime_targets(
    regime: Regime | str,
    x: Tensor,
    y: Tensor | None = None,
    *,
    black_box: Any = None,
    predictor: nn.Module | BlackBox | None = None,
) -> Tensor:
    """What an explainer's program observes as y in a regime: `(N,)` labels or responses, or `(N,
    C)` probabilities.

    In the in-situ regimes these are the labels. In the post-hoc regimes they are the probabilities
    `p_m(y | x)`, so that `Σ_c p_m(c | x) log p(c | x)` is exact and takes no draw of y; for
    regression it is the mean response. Labels, where given, are not read there.

    Args:
        regime: one of `Regime`, or its value.
        x: rows, `(N, *event)`.
        y: labels or responses, `(N,)`; needed in-situ.
        black_box: the model to be explained in the surrogate regime: a
            :class:`~lexppl.models.black_box.BlackBox`, or what :func:`~lexppl.models.black_box`
            wraps without more arguments.
        predictor: the given predictor, whose own output on all of x is observed in the self regime;
            not read in the others.

    Raises:
        ValueError: an unknown regime; a piece that the regime needs is missing, or a black box is
            given to a regime without one; y of another shape or not finite.

    Source: Senetaire, Garreau, Frellsen, Mattei. Explainability as statistical inference. ICML
    2023, § 2.5.

    Example:
        >>> import torch
        >>> x = torch.zeros(2, 3)
        >>> regime_targets("surrogate post-hoc", x, black_box=lambda rows: 0.25 + rows[:, 0])
        tensor([[0.7500, 0.2500],
                [0.7500, 0.2500]])
    """
    regime = regime.value if isinstance(regime, Regime) else regime
    chosen = Regime(one_of([member.value for member in Regime], "regime", regime))
    surrogate = chosen is Regime.SURROGATE_POST_HOC
    if black_box is not None and not surrogate:
        raise ValueError(
            f"the {chosen.value} regime has no black box, which is of "
            f"{Regime.SURROGATE_POST_HOC.value!r}"
        )
    if y is not None and len(y) != len(x):
        raise ValueError(f"x has {len(x)} rows and y has {len(y)}")
    if not chosen.post_hoc:
        shaped(
            "y",
            y,
            (len(x),),
            note="of labels or responses: regimes that are post-hoc observe probabilities",
        )
        refuse_not_finite("y", y)
        return torch.as_tensor(y)
    model: Any = black_box if surrogate else predictor
    if model is None:
        needed = "black_box=, such as a fitted classifier" if surrogate else "predictor=, its own"
        raise ValueError(f"the {chosen.value} regime explains a model's output: give {needed}")
    return (model if isinstance(model, BlackBox) else wrapped(model)).targets(x)


class Frozen(Configured, nn.Module):
    """A module that never learns: no gradients, and evaluation mode for good, also while a program
    that holds it trains. What the module has, such as a likelihood, can be read from here too. The
    module is taken as it is; :func:`frozen` freezes a copy."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Frozen:
        """The imputer itself, which stays in evaluation mode."""
        super().train(False)
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            # Before the module is there (in a copy being made), asking it would never end.
            if name.startswith("__") or "module" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(self.module, name)


def frozen(module: nn.Module) -> Frozen:
    """A copy of a module whose parameters get no gradient and whose statistics never move.

    Raises:
        TypeError: not a module.

    Example:
        >>> given = nn.Linear(2, 2)
        >>> any(p.requires_grad for p in frozen(given).parameters()), given.training
        (False, True)
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"frozen takes an nn.Module; it is given {type(module).__name__}")
    return module if isinstance(module, Frozen) else Frozen(copy.deepcopy(module))


class AdaptedNormalisation(Frozen):
    """A module of which only the batch norms learn, γ, β and the running statistics, from all
    particles' rows together; dropout stays off."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        for norm in self.norms:
            norm.requires_grad_(True)

    @property
    def norms(self) -> list[_BatchNorm]:
        """The module's batch norms."""
        return [part for part in self.module.modules() if isinstance(part, _BatchNorm)]

    def train(self, mode: bool = True) -> AdaptedNormalisation:
        """Set the batch norms' mode; the rest stays in evaluation."""
        super().train(False)
        for norm in self.norms:
            norm.train(mode)
        return self


def adapted_normalisation(module: nn.Module) -> AdaptedNormalisation:
    """A copy of a module, such as a given predictor, in which nothing but the batch norms will
    learn.

    Raises:
        TypeError: not a module.
        ValueError: no batch norm in it.

    Example:
        >>> adapted = adapted_normalisation(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
        >>> [name for name, p in adapted.module.named_parameters() if p.requires_grad]
        ['1.weight', '1.bias']
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"adapted_normalisation takes an nn.Module, not {type(module).__name__}")
    if not any(isinstance(part, _BatchNorm) for part in module.modules()):
        raise ValueError(f"{type(module).__name__} has no batch norm to adapt: leave it frozen")
    return AdaptedNormalisation(copy.deepcopy(module))
