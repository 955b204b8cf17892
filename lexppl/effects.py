"""What a program declares to the objective: particles, penalties, labels, weights drawn first.

Other Pyro inference reads them as a plate of size one, a log factor and a weighted plate."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import _PYRO_STACK, effectful
from pyro.poutine.subsample_messenger import SubsampleMessenger
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least


def draw_weights(module: nn.Module) -> None:
    """Draw a module's weights that have priors now, at the head of its `forward`.

    A `PyroSample` that is first read inside a plate would be drawn for each of its entries; read
    before the plates, it is one latent that all rows share. `fit` does this for every program; call
    it in a program that is to run under Pyro's own inference too.

    Example:
        >>> import pyro, torch
        >>> import pyro.distributions as dist
        >>> from pyro.nn import PyroSample
        >>> class Line(PyroModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.slope = PyroSample(dist.Normal(0.0, 1.0))
        ...     def forward(self, x):
        ...         draw_weights(self)
        ...         with pyro.plate("data", len(x)):
        ...             return pyro.sample("y", dist.Normal(self.slope * x, 1.0))
        >>> trace = pyro.poutine.trace(Line()).get_trace(torch.zeros(5))
        >>> trace.nodes["slope"]["value"].shape
        torch.Size([])
    """
    if not isinstance(module, PyroModule) or module._pyro_context.active:
        _draw(_with_priors(module))


def weights_first(program: Callable[..., Any]) -> Callable[..., Any]:
    """A program whose weights with priors are drawn before it does anything else."""
    if not isinstance(program, nn.Module):
        return program
    parts = _with_priors(program)
    if not parts:
        return program

    def called(*args: Any, **kwargs: Any) -> Any:
        with _active(parts):
            _draw(parts)
            return program(*args, **kwargs)

    return called


def drawing_weights_first(module: nn.Module) -> AbstractContextManager[None]:
    """Let a module that others hold draw its weights with priors first, wherever it is called."""
    parts = _with_priors(module)

    def enter(call: ExitStack) -> None:
        call.enter_context(_active(parts))
        _draw(parts)

    return around_calls(module, enter) if parts else nullcontext()


@contextmanager
def around_calls(module: nn.Module, enter: Callable[[ExitStack], Any]) -> Iterator[None]:
    """Begin each call of a module that others hold by `enter`, whose contexts end with the call."""
    calls: list[ExitStack] = []

    def before(_: nn.Module, __: Any) -> None:
        calls.append(ExitStack())
        enter(calls[-1])

    def after(*_: Any) -> None:
        calls.pop().close()

    hooks = (
        module.register_forward_pre_hook(before),
        module.register_forward_hook(after, always_call=True, prepend=True),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _draw(parts: list[PyroModule]) -> None:
    for part in parts:
        # Only what is being called remembers a weight that is read.
        if part._pyro_context.active:
            for name in part._pyro_samples:
                getattr(part, name)


def _active(parts: list[PyroModule]) -> ExitStack:
    """A weight that is read is kept until its module's outermost call ends."""
    calls = ExitStack()
    for context in {id(p._pyro_context): p._pyro_context for p in parts}.values():
        calls.enter_context(context)
    return calls


def weights_with_priors(module: nn.Module) -> list[str]:
    """The names of a module's weights that have priors (`PyroSample`)."""
    return [
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        if isinstance(part, PyroModule)
        for name in part._pyro_samples
    ]


def _with_priors(module: nn.Module) -> list[PyroModule]:
    return [m for m in module.modules() if isinstance(m, PyroModule) and m._pyro_samples]


MASK_PLATE = "mask_particles"
IMPUTATION_PLATE = "imputation_particles"
LABEL_PLATE = "label_expectation"
PENALTY = "penalty"
BY_DRAW = "_by_draw"  # Whether a penalty differs between the masks of a row

MASK_KIND = "mask_kind"  # The key of a mask site's `infer` that says what its values mean
MASK_KINDS = ("selection", "share", "strength", "attribution")

WITH_MASK = "with_mask"
"""The key of a latent's `infer` with the name of the mask that leaves its entries out."""

MASK_DIM = -2
IMPUTATION_DIM = -3
LABEL_DIM = -4


@effectful(type="particle_count")
def _particle_count(default: int) -> int:
    return default


class Answers(Messenger):
    """Values of effectful statements of the program inside, by their type."""

    def __init__(self, **answers: Callable[[Any], Any]) -> None:
        super().__init__()
        self._answers = answers

    def _process_message(self, msg: Any) -> None:
        answer = self._answers.get(msg["type"])
        if answer is not None and not msg["done"]:
            msg["value"], msg["done"] = answer(msg), True


class ParticleCounts(Answers):
    """Size the particle plates of the program inside: L masks, K imputations a mask."""

    def __init__(self, masks: int, imputations: int = 1) -> None:
        counts = {
            MASK_PLATE: int_at_least("masks", masks),
            IMPUTATION_PLATE: int_at_least("imputations", imputations),
        }
        super().__init__(particle_count=lambda msg: counts[msg["name"]])


@effectful(type="fit_progress")
def fit_progress() -> float:
    """How far the fit has come, from 0 to 1; 1 without an objective."""
    return 1.0


@effectful(type="fit_reaches")
def fit_reaches(share: float) -> bool:
    """Whether the fit has come so far; yes without an objective. Compiled steps depend on its
    answer alone.

    Example:
        >>> with Progress(0.25):
        ...     fit_reaches(0.2), fit_reaches(0.3)
        (True, False)
        >>> fit_reaches(0.3)
        True
    """
    return True


class Progress(Answers):
    """The value of :func:`fit_progress` and :func:`fit_reaches` for the program inside."""

    def __init__(self, value: float) -> None:
        share = float(value)
        super().__init__(
            fit_progress=lambda msg: share, fit_reaches=lambda msg: share >= msg["args"][0]
        )


@effectful(type="row_penalties")
def row_penalties() -> Tensor | None:
    """λ of each row `(B,)`, as the program charges it; None where no program names it."""
    return None


class RowPenalties(Answers):
    """The value of :func:`row_penalties` for the selector inside."""

    def __init__(self, penalties: Tensor) -> None:
        super().__init__(row_penalties=lambda msg: penalties)


EVERY_SHIFT = -1
"""The :func:`fold_shift` of a run with all predictors: that of shift 0 judges, the others learn."""


@effectful(type="fold_shift")
def fold_shift() -> int | None:
    """Which of its predictors a cross-fitted module gives the rows of a batch, ordered by fold.

    0: the one that has not learned from a row's fold; s = 1 … F − 1: those that have;
    :data:`EVERY_SHIFT`: both; None outside a cross-fitted fit, where all are averaged.
    """
    return None


class FoldShift(Answers):
    """The value of :func:`fold_shift` for the program inside."""

    def __init__(self, value: int) -> None:
        super().__init__(fold_shift=lambda msg: value)


@effectful(type="batch_scale")
def batch_scale() -> float:
    """N/B, how many of a data set's N rows each of a batch's B rows stands for; 1 outside a fit.

    The loss of an objective that does not run the program's plates is the sum over the rows of the
    batch times it, of the whole data set whatever the batch: what weight decay, penalties and
    priors are weighed against.

    Example:
        >>> from lexppl.inference.contexts import MiniBatch
        >>> with MiniBatch(2000, 500):
        ...     batch_scale()
        4.0
    """
    return 1.0


@effectful(type="row_weights")
def row_weights() -> Tensor | None:
    """How often each row of the batch counts, `(B,)`; None where all count once.

    A fit multiplies what a row observes by its weight; only what looks at several rows, such as
    risk sets, needs them.
    """
    return None


BEFORE_PARTICLES = "_before_particles"
"""The key of a site's `infer` with its distribution as it is outside the particle plates."""


class _ParticlePlate(pyro.plate):
    """A plate that makes no statement of its own, so that a program may enter it several times."""

    def __enter__(self) -> Any:
        # A plate right outside this one expands distributions to both: three times the same work
        # was a twentieth of a small step.
        self._expands = not (_PYRO_STACK and isinstance(_PYRO_STACK[-1], pyro.plate))
        return super().__enter__()

    def _process_message(self, msg: Any) -> None:
        if msg["type"] == "sample":
            msg["infer"][BEFORE_PARTICLES] = msg["fn"]
        if self._expands:
            super()._process_message(msg)
        else:
            SubsampleMessenger._process_message(self, msg)

    @staticmethod
    def _subsample(name: str, size: int | None = None, *_: Any) -> tuple[int, int, Tensor]:
        count = int(size or 1)
        return count, count, torch.arange(count)


def mask_particles() -> pyro.plate:
    """Plate over the `L` masks of a row, at dimension −2; one mask where no objective sizes it.

    Use it in a program of your own around the site of the mask, inside the plate of rows. `fit` and
    `explain` find masks by it.

    Example:
        >>> with pyro.plate("data", 3, dim=-1), mask_particles():
        ...     pyro.sample("mask", dist.Bernoulli(torch.full((3, 2), 0.5)).to_event(1)).shape
        torch.Size([1, 3, 2])

    Sites inside have batch shape `(L, B)`. The objective averages over this plate inside its log:
    `log 1/L Σ_l w_l` (LEX, Senetaire et al. 2023, eq. 8).
    """
    return _ParticlePlate(MASK_PLATE, _particle_count(1, name=MASK_PLATE), dim=MASK_DIM)


def imputation_particles() -> pyro.plate:
    """Plate over the `K` imputations of a mask, at dimension −3, entered inside
    :func:`mask_particles`; one imputation where no objective sizes it. Sites inside have batch
    shape `(K, L, B)`.

    Example:
        >>> with ParticleCounts(masks=4, imputations=2):
        ...     with pyro.plate("data", 3, dim=-1), mask_particles(), imputation_particles():
        ...         pyro.sample("x_imputed", dist.Normal(0.0, 1.0)).shape
        torch.Size([2, 4, 3])
    """
    size = _particle_count(1, name=IMPUTATION_PLATE)
    return _ParticlePlate(IMPUTATION_PLATE, size, dim=IMPUTATION_DIM)


def penalty(name: str, value: Tensor) -> None:
    """Subtract `value` from the objective, outside its log: `− E_p[R(z)]` (LEX, eq. 6).

    Inside :func:`mask_particles` the value is averaged over the masks. A plain Pyro ELBO reads the
    log factor `−value`.

    Args:
        name: the site's name, unique in the program.
        value: nats, `(L, B)` or broadcastable to it; `(B,)` for a function of the masks'
            distribution alone, which no draw is then judged by.

    Raises:
        TypeError: the value is not a tensor.

    Example:
        >>> mask = torch.tensor([[1.0, 0.0, 1.0]])
        >>> tracer = pyro.poutine.trace(lambda: penalty("size", 0.1 * mask.sum(-1)))
        >>> round(float(tracer.get_trace().log_prob_sum()), 4)
        -0.2
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"penalty {name!r} must be a tensor of nats; it is {type(value).__name__}")
    observed = value.new_empty((*value.shape, 0))
    infer = {PENALTY: True, BY_DRAW: value.dim() >= -MASK_DIM}
    pyro.sample(name, dist.Unit(-value), obs=observed, infer=infer)


class _Weighted(Messenger):
    """Multiply the scale of the sites inside by weights that may be zero, which `poutine.scale`
    refuses."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self._weight = weight

    def _process_message(self, msg: Any) -> None:
        if msg["type"] == "sample":
            msg["scale"] = self._weight * msg["scale"]


@contextmanager
def label_expectation(probabilities: Tensor) -> Iterator[Tensor]:
    """Observe every label with its probability: the exact expectation `Σ_c p(c|x) log(…)_c`.

    For the post-hoc regimes, where y is a black box's (LEX, § 2.5). The masks and imputations are
    shared by the labels, which are weighted outside the objective's log.

    Args:
        probabilities: `(B, C)`, rows summing to one.

    Yields:
        the labels `0 … C−1`, of shape `(C, 1, 1, 1)`: a plate at dimension −4.

    Example:
        >>> p = torch.tensor([[0.25, 0.75]])
        >>> def model():
        ...     with pyro.plate("data", 1, dim=-1), label_expectation(p) as y:
        ...         pyro.sample("y", dist.Categorical(torch.tensor([0.5, 0.5])), obs=y)
        >>> round(float(pyro.poutine.trace(model).get_trace().log_prob_sum()), 4)
        -0.6931
    """
    classes = probabilities.shape[-1]
    weight = probabilities.movedim(-1, 0)[:, None, None, :]
    with pyro.plate(LABEL_PLATE, classes, dim=LABEL_DIM), _Weighted(weight):
        yield torch.arange(classes, device=probabilities.device).reshape(-1, 1, 1, 1)
