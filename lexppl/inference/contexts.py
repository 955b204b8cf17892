"""Settings and random states that a fit needs, put back when it is done."""

import copy
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyro
import torch
from pyro.nn import PyroModule
from pyro.nn.module import _Context
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import effectful
from torch import Tensor

from lexppl.effects import IMPUTATION_PLATE, LABEL_PLATE, MASK_PLATE, PENALTY
from lexppl.threads import ONE_THREAD, own_random_state

ROWS = "data"  # The name of the plate over rows, where several plates could be it


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Draw from a seed inside; the default generators of CPU, device, NumPy and Python are as
    before after."""
    with own_random_state(device):
        seed_generators(seed)
        yield


def seed_generators(seed: int) -> None:
    """Seed torch, NumPy and Python, torch's CPU alone without an accelerator: most of a millisecond
    less a call."""
    np.random.seed(int(seed) % 2**32)  # noqa: NPY002
    random.seed(int(seed))
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(int(seed))


@contextmanager
def program_settings(validate: bool) -> Iterator[None]:
    """Pyro's checks on or off, parameters local to modules, and no denormal numbers, inside."""
    with (
        ONE_THREAD,
        pyro.validation_enabled(validate),
        pyro.settings.context(module_local_params=True),
        flushed_denormals(),
    ):
        try:
            yield
        except AttributeError as error:
            if not isinstance(error.obj, _Context):
                raise
            raise ValueError(
                "the program calls a Pyro module that is no part of it: write the program as a "
                "module that has this one as a part, as self.network"
            ) from error


SUBSAMPLED = "a plate takes {} of the rows, by subsample_size: leave it out to explain each row"
EXPLAINED = (
    (
        r'plates "(.+)" and "(.+)", collide at dim=(-\d+)',
        "plates {0!r} and {1!r} are both at dim {2}: mask_particles() is at dim -2 and "
        "imputation_particles() at dim -3, so that the plate over rows is at dim=-1",
    ),
    (
        r"inside plate\('(.+)'\) at site (\S+) dim (-\d+), (\d+) vs (\d+)",
        "site {1!r} has {4} entries at dim {2} of its batch shape, where the plate {0!r} has {3}: "
        "a plate over rows has len(x) entries, and what belongs to one entry is an event, as "
        "Bernoulli(…).to_event(1) makes the features of a row",
    ),
    (r"subsample_size does not match len\S+ (\d+) vs", SUBSAMPLED),
    (
        "enumeration only supports scalar poutine.scale",
        "TraceEnum_ELBO takes no weight of each row: leave row_weights and sample_weight out, or "
        "give objective=NestedIWAE(math.inf, estimator=Enumerate()), which sums the same latents "
        "out within mask_particles()",
    ),
    (
        r"^((?:The size of tensor a|index \d+ is out of bounds) .*)",
        "the program ends with {0!r}: as it is run on some of the rows, what it holds of each row "
        "itself, such as offsets or groups, must be columns of x",
    ),
)
"""What mends errors of Pyro and torch, by what is found in them."""


@contextmanager
def plate_errors_explained() -> Iterator[None]:
    """Errors of a program about its plates, or the rows that it is given, with what mends them."""
    try:
        yield
    except (ValueError, RuntimeError, IndexError) as error:
        for words, mend in EXPLAINED:
            if (match := re.search(words, str(error))) is not None:
                raise ValueError(mend.format(*match.groups())) from error
        raise


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Let denormal numbers be zero inside: with them steps took more than twice as long."""
    smallest = torch.tensor(torch.finfo(torch.float64).tiny, dtype=torch.float64)
    before = bool(smallest / 2 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


class _OwnParameters(_Context):
    """The state that a Pyro module's calls share, with parameters local during a call."""

    def __enter__(self) -> None:
        # A step of a fit has the setting on already, and is not to pay for it again.
        if not self.active and not pyro.settings.get("module_local_params"):
            self._setting = pyro.settings.context(module_local_params=True)
            self._setting.__enter__()
        super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if not self.active and hasattr(self, "_setting"):
            self._setting.__exit__(*error)
            del self._setting


def keep_parameters_local(*programs: Any) -> None:
    """Let the Pyro modules of programs have their own parameters, wherever they are called; a
    function, or None, has none.

    Pyro otherwise reads and writes its global store, where replicates share names.

    Example:
        >>> from pyro.nn import PyroModule, PyroParam
        >>> class Centre(PyroModule):
        ...     def __init__(self, value: float) -> None:
        ...         super().__init__()
        ...         self.loc = PyroParam(torch.tensor(value))
        ...     def forward(self) -> float:
        ...         return float(self.loc.detach())
        >>> first, second = Centre(1.0), Centre(2.0)
        >>> keep_parameters_local(first, second)
        >>> first(), second(), dict(pyro.get_param_store())
        (1.0, 2.0, {})
    """
    modules = (program for program in programs if isinstance(program, torch.nn.Module))
    for part in (part for module in modules for part in module.modules()):
        if isinstance(part, PyroModule) and not isinstance(part._pyro_context, _OwnParameters):
            context = part._pyro_context
            if not hasattr(context, "param_state"):
                # What Pyro's own inference has learned by `pyro.param` is the program's too.
                context.param_state = pyro.get_param_store().get_state()
            # In place: a module and its parts share one, and with it the weights they have drawn.
            context.__class__ = _OwnParameters


def held(program: Any) -> Any:
    """A copy of a module that learns nothing and drops nothing out; a function as it is."""
    if not isinstance(program, torch.nn.Module):
        return program
    fixed = copy.deepcopy(program).requires_grad_(False).eval()
    keep_parameters_local(fixed)
    return fixed


class MiniBatch(Messenger):
    """Scale a mini-batch of B rows up to the data set: `N/B` for its plate over rows.

    A plate of N entries that the program itself subsamples is left alone.
    """

    def __init__(self, rows: int, batch: int, plate: str | None = "data") -> None:
        super().__init__()
        self._rows, self._batch, self._plate = rows, batch, plate
        self._factor = rows / batch

    def _pyro_batch_scale(self, msg: Any) -> None:
        msg["value"], msg["done"] = self._factor, True

    def _pyro_sample(self, msg: Any) -> None:
        if self._rows == self._batch:
            return
        plates = msg["cond_indep_stack"]
        for place, plate in enumerate(plates):
            if plate.name == self._plate and plate.full_size == self._batch:
                msg["scale"] = msg["scale"] * self._factor
                frame = plate._replace(full_size=self._rows)
                msg["cond_indep_stack"] = (*plates[:place], frame, *plates[place + 1 :])
                return
        if _observes_whole_batch(msg):
            raise ValueError(
                f"site {msg['name']!r} observes the whole batch at once, and {self._batch} of "
                f"{self._rows} rows do not say what the rest would add; give all rows at once "
                f"(batch_size={self._rows} or more)"
            )


class RowWeights(Messenger):
    """Scale the sites of the plate over rows by weights `(B,)`; other sites stay as they are."""

    def __init__(self, weights: Tensor, plate: str) -> None:
        super().__init__()
        self._weights, self._plate = weights, plate

    def _pyro_row_weights(self, msg: Any) -> None:
        if not msg["done"]:
            msg["value"], msg["done"] = self._weights, True

    def _pyro_sample(self, msg: Any) -> None:
        for plate in msg["cond_indep_stack"]:
            if plate.name == self._plate:
                if plate.size != len(self._weights):
                    raise ValueError(
                        f"the program takes {plate.size} of the {len(self._weights)} rows of a "
                        f"batch in its plate {plate.name!r}, and a weight cannot follow its row "
                        "there: give no row_weights, or leave subsample_size out"
                    )
                msg["scale"] = self._weights * msg["scale"]
                return
        if _observes_whole_batch(msg):
            raise ValueError(
                f"site {msg['name']!r} observes the whole batch at once, in which a row has no "
                f"term of its own to weigh; observe it in the plate {self._plate!r}, or give no "
                "row_weights"
            )


def _observes_whole_batch(msg: Any) -> bool:
    names = {plate.name for plate in msg["cond_indep_stack"]}
    infer = msg["infer"] or {}
    if not msg["is_observed"] or MASK_PLATE not in names or infer.get(PENALTY):
        return False
    return names <= {MASK_PLATE, IMPUTATION_PLATE, LABEL_PLATE}


def rows_plate(nodes: Iterable[Mapping[str, Any]], batch: int) -> str | None:
    """The plate over the batch's rows: of dim −1 and B entries "data", or the only one."""
    plates = [p for node in nodes for p in node["cond_indep_stack"] if p.dim == -1]
    names = {plate.name for plate in plates if plate.full_size == batch}
    for plate in plates:
        if not names and plate.size == batch:
            raise ValueError(
                f"plate {plate.name!r} has {plate.full_size} entries, of which the {batch} rows "
                "of a batch are a part: a fit scales a batch up by itself, so write "
                f"pyro.plate({plate.name!r}, len(x), dim=-1)"
            )
    if ROWS in names:
        return ROWS
    if len(names) < 2:
        return next(iter(names), None)
    raise ValueError(
        f"plates {sorted(names)} at dim -1 have {batch} entries each, as many as the batch has "
        f'rows, so that they cannot be distinguished; call the plate over rows "{ROWS}"'
    )


@effectful(type="random_state")
def random_state(device: torch.device) -> Tensor:
    """The state of the generator that draws on a device."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@effectful(type="set_random_state")
def set_random_state(device: torch.device, state: Tensor) -> None:
    """Go back to a state of :func:`random_state`."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
