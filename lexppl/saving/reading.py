"""A fitted explainer from files."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from pyro.infer.autoguide import AutoGuide
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from lexppl.inference import CrossFitted, FitResult, SampledGuide, SamplerRecord
from lexppl.inference.pyro_parameters import ProgramFunction, hold_saved, is_program
from lexppl.saving.automatic_guides import AUTOMATIC, ROW, rebuilt_guide, settle_guide
from lexppl.saving.description import known_parts, rebuild
from lexppl.saving.fields import Number, numbers_of, result_fields, sampler_fields
from lexppl.saving.layout import (
    DESCRIPTION,
    FORMAT,
    SAMPLER,
    WEIGHTS,
    WEIGHTS_CHECKSUM,
    is_own_program,
    own_tensors,
)
from lexppl.sealed_files import (
    UnreadableFileError,
    checksum,
    read_sealed,
    refuse_changed,
    refuse_formats,
    refused_by_name,
)
from lexppl.threads import own_random_state

LEAST_BYTES, TIMES_THE_WEIGHTS = 2**28, 16
"""Bytes that the tensors of all parts may take while they are built: so many, and so many times
those of the weights that are then loaded into them."""
LEAST_CALLS, CALLS_A_WEIGHT = 20_000, 200
"""The same of torch's operations, by tensors in the file."""
MOST = 2**24
"""Of a whole number in a description, and of the places of an image, where the file has fewer
weights than that."""
SMALL = 2**20
"""Numbers that an operation may make without a check."""
SHAPES = ("shape", "event_shape")


class BuildLimits(TorchDispatchMode):
    """Within it, torch refuses to make tensors that a file of this size cannot need.

    Entered again, for the next replicate, it goes on counting. What a large operation would make is
    found by torch's "meta" device, which makes nothing, before it is run.

    Args:
        weights: the tensors of the file.

    Raises:
        ValueError: from an operation within, more bytes or operations than there may be.

    Example:
        >>> with BuildLimits({"weight": torch.zeros(3)}):
        ...     torch.nn.Linear(10**6, 10**6)
        Traceback (most recent call last):
        ...
        ValueError: it describes parts of more than 268,435,648 bytes, which its weights do not fill
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        numbers = sum(t.nbytes for t in weights.values())
        self.bytes = LEAST_BYTES + TIMES_THE_WEIGHTS * numbers
        self.calls = LEAST_CALLS + CALLS_A_WEIGHT * len(weights)
        self._bytes_left, self._calls_left = self.bytes, self.calls

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch loads its compiler, a second, with the first part that is built.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        self._calls_left -= 1
        if self._calls_left < 0:
            raise ValueError(f"it describes parts that take more than {self.calls:,} operations")
        if _may_be_large(args, named):
            self._count(_made_on_meta(func, args, named), keep=True)
        made = func(*args, **named)
        self._count(made)
        return made

    def _count(self, made: Any, keep: bool = False) -> None:
        tensors = (one for one in tree_leaves(made) if isinstance(one, Tensor))
        left = self._bytes_left - sum(one.numel() * one.itemsize for one in tensors)
        if left < 0:
            raise ValueError(
                f"it describes parts of more than {self.bytes:,} bytes, which its weights do not "
                "fill"
            )
        self._bytes_left = self._bytes_left if keep else left


def refuse_sizes(config: Any, weights: Mapping[str, Tensor], name: str = "") -> None:
    """Refuse whole numbers that no part of a file of this size can have, before it is built.

    What a part makes of numbers in Python, such as a list with an entry for each pixel, torch does
    not see.

    Args:
        config: a description, or what stands in one.
        weights: of the file.
        name: of what it is in the description.

    Raises:
        ValueError: a number, or a product of an image's sides, above the limit.

    Example:
        >>> refuse_sizes({"k": 10**12}, {})
        Traceback (most recent call last):
        ...
        ValueError: it describes a part with k = 1000000000000, which its weights do not fill
    """
    most = max(MOST, sum(t.numel() for t in weights.values()))
    _refuse_above(config, most, name)


def _refuse_above(config: Any, most: int, name: str) -> None:
    if isinstance(config, int) and abs(config) > most:
        size = str(config) if abs(config) < 10**30 else "a number of more than 30 digits"
        raise ValueError(f"it describes a part with {name} = {size}, which its weights do not fill")
    if isinstance(config, list):
        if name in SHAPES and all(type(side) is int for side in config):
            _refuse_above(prod(config), most, f"the product of {name}")
        for one in config:
            _refuse_above(one, most, name)
    if isinstance(config, dict):
        for key, one in config.items():
            _refuse_above(one, most, key)


def _may_be_large(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether what an operation is given may make more than some megabytes."""
    bound = 1
    for one in tree_leaves((args, kwargs)):
        if isinstance(one, Tensor):
            bound *= max(one.numel(), 1)
        elif isinstance(one, int):
            # Squared, as `eye` takes one number for two sides.
            bound *= max(one * one, 1)
        if bound > SMALL:
            return True
    return False


def _made_on_meta(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operation would make, without its numbers."""
    args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
    if "device" in kwargs or not any(isinstance(one, Tensor) for one in tree_leaves(args)):
        kwargs["device"] = torch.device("meta")
    try:
        return func(*args, **kwargs)
    except (NotImplementedError, RuntimeError):
        # How much it makes depends on numbers, as of `nonzero`: it is bounded by what is there.
        return None


Given = nn.Module | Callable[[], nn.Module] | None
"""A program of the user's own, or what builds it."""


def load(
    folder: str | Path,
    *,
    model: Given = None,
    guide: Given = None,
    parts: Iterable[type[nn.Module]] = (),
) -> FitResult:
    """Read a fitted explainer that :func:`save` wrote; it gives the same explanations.

    Files that are damaged, cut short, changed or mixed up are refused by their checksums, and those
    of another format by its number. Nothing in a file is run: its parts are the library's own, or
    those of `parts`, and are built within limits of memory that follow from the size of the
    weights. A checksum is no signature, though: who can write the files can write it too.

    Args:
        folder: where it was saved.
        model: for a program of your own, a function that builds it (or one such module).
        guide: the same for its guide, or one of Pyro's classes, as `fit` takes it. Not needed for
            AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal, AutoLowRankMultivariateNormal
            and AutoDelta, which are rebuilt on the model that is loaded.
        parts: classes of your own that the description names.

    Raises:
        FileNotFoundError: no explainer there.
        lexppl.saving.UnreadableFileError: a `ValueError` that names the file: damaged, of another
            format, not of this library, or of parts that are not known.
        ValueError: a model that needs `model=`, weights that are not of the one given, or a model
            whose latents are not, in their order, those that the guide was fitted to.
    """
    folder = Path(folder)
    for name in (WEIGHTS, DESCRIPTION):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}; it is not a saved explainer")
    described = _description(folder / DESCRIPTION)
    refuse_changed(folder / WEIGHTS, checksum(folder / WEIGHTS), described.get(WEIGHTS_CHECKSUM))
    with refused_by_name(folder / WEIGHTS):
        weights = load_file(folder / WEIGHTS)
    with refused_by_name(folder / DESCRIPTION):
        fields = result_fields(described)
        sampler = sampler_fields(described)
        count = len(fields["best_epoch"])
        allowed = {**known_parts(), **{part.__name__: part for part in parts}}
        limits = BuildLimits(weights)
        builders = [
            _Builder(
                kind,
                folder,
                described.get(kind),
                numbers_of(described, kind, count),
                weights,
                given,
                allowed,
                limits,
            )
            for kind, given in (("model", model), ("guide", guide))
        ]
    if sampler is None:
        models = [builders[0].module(r) for r in range(count)]
        guides = [builders[1].module(r, models[r]) for r in range(count)]
        record = None
    else:
        models = [builders[0].module(0)] * count
        with refused_by_name(folder / WEIGHTS):
            guides = [
                SampledGuide.of_state(own_tensors(f"guide.{r}.", weights)) for r in range(count)
            ]
            stats = own_tensors(f"{SAMPLER}.", weights)
            record = SamplerRecord(**sampler, sample_stats={n: t.numpy() for n, t in stats.items()})
    return FitResult(models=models, guides=guides, sampler=record, **fields)


def _description(path: Path) -> dict[str, Any]:
    described, is_whole = read_sealed(path)
    refuse_formats(path, described.get("format"), FORMAT, is_whole, described.get("version"))
    if described["format"] != FORMAT:
        raise UnreadableFileError(
            path,
            f"it has format {described['format']} of an earlier version, and this one reads "
            f"{FORMAT} alone: fit again, or load it with the version that wrote it",
        )
    return described


@dataclass(frozen=True)
class _Builder:
    """What makes the modules of the replicates.

    Args:
        kind: "model" or "guide".
        folder: of the explainer.
        described: the description of the first.
        numbers: in which they differ.
        weights: of the file.
        given: the user's own program, or what builds it.
        allowed: parts by name.
        limits: of what building all of them may cost.
    """

    kind: str
    folder: Path
    described: Any
    numbers: list[Number]
    weights: Mapping[str, Tensor]
    given: Given
    allowed: Mapping[str, type[nn.Module]]
    limits: BuildLimits

    def module(self, replicate: int, program: nn.Module | None = None) -> nn.Module | None:
        """The module of a replicate with its weights, or None where there is none.

        Args:
            replicate: its number.
            program: of a guide.
        """
        own = own_tensors(f"{self.kind}.{replicate}.", self.weights)
        if self.described is None and not own:
            return None
        is_guide = program is not None
        given: Any = self.given
        kind = given.func if isinstance(given, partial) else given
        module: Any
        if is_guide and isinstance(kind, type) and issubclass(kind, AutoGuide):
            module = given(program)
        elif isinstance(given, nn.Module):
            module = copy.deepcopy(given)
        elif given is not None:
            module = ProgramFunction(given) if is_program(given) else given()
        elif is_guide and isinstance(self.described, dict) and AUTOMATIC in self.described:
            with refused_by_name(self.folder / DESCRIPTION):
                refuse_sizes(self.described, self.weights)
                module = rebuilt_guide(self.described, program, own)
        elif self.described is None or is_own_program(self.described):
            named = "module" if self.described is None else str(self.described["class"])
            raise ValueError(
                f"the {self.kind} is a {' '.join(named.split())}, a program of your own: give "
                f"{self.kind}= to load, a function that builds it"
            )
        else:
            with refused_by_name(self.folder / DESCRIPTION):
                module = self._built()
        if is_guide and isinstance(module, AutoGuide):
            with refused_by_name(self.folder / DESCRIPTION):
                settle_guide(module, self.described, program, own_tensors(ROW, self.weights))
        try:
            _put(module, own)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            if given is not None:
                raise ValueError(
                    f"the weights in {self.folder} are not those of the {self.kind} that "
                    f"{self.kind}= gives: {reason}"
                ) from error
            reason = f"its weights are not those of what {DESCRIPTION} describes: {reason}"
            raise UnreadableFileError(self.folder / WEIGHTS, reason) from error
        with refused_by_name(self.folder / DESCRIPTION):
            for number in self.numbers:
                _set(module, number, replicate)
        return module.eval()

    def _built(self) -> nn.Module:
        refuse_sizes(self.described, self.weights)
        # What modules draw as initial weights is overwritten, and must not move the global state.
        with own_random_state(), self.limits:
            module = rebuild(self.described, self.allowed)
        if not isinstance(module, nn.Module):
            raise ValueError(f"{self.kind} describes no part, but {module!r}")
        return module


def _put(module: nn.Module, own: Mapping[str, Tensor]) -> None:
    """Load weights, of the same kinds of numbers."""
    folds = {name.split(".")[2] for name in own if name.startswith("predictor.predictors.")}
    if folds and not isinstance(predictor := module.get_submodule("predictor"), CrossFitted):
        module.predictor = CrossFitted([copy.deepcopy(predictor) for _ in folds])
    hold_saved(module, own)
    for name, tensor in module.state_dict().items():
        if name in own and not _alike(own[name].dtype, tensor.dtype):
            raise ValueError(f"{name} is {own[name].dtype}, and must be {tensor.dtype}")
    module.load_state_dict(own, assign=True)


def _alike(one: torch.dtype, other: torch.dtype) -> bool:
    return one == other or (one.is_floating_point and other.is_floating_point)


def _set(module: nn.Module, number: Number, replicate: int) -> None:
    part = module.get_submodule(number.path)
    before = vars(part).get(number.name)
    if isinstance(before, bool) or not isinstance(before, int | float):
        raise ValueError(f"{number.name!r} is no number of the part {number.path!r}")
    setattr(part, number.name, number.values[replicate])
