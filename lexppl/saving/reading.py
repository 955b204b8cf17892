"""A fitted explainer from files."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pyro.infer.autoguide import AutoGuide
from safetensors.torch import load_file
from torch import Tensor, nn

from lexppl.inference import CrossFitted, FitResult, SampledGuide, SamplerRecord
from lexppl.inference.pyro_parameters import ProgramFunction, hold_saved, is_program
from lexppl.saving.automatic_guides import AUTOMATIC, ROW, rebuilt_guide, settle_guide
from lexppl.saving.build_limits import BuildLimits, refuse_sizes
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

    Files that are damaged, cut short, changed or mixed up are refused by their checksums. Those
    that older versions wrote have none, and are read as far as they make sense. Nothing in a file
    is run: its parts are the library's own, or those of `parts`, and are built within limits of
    memory that follow from the size of the weights. A checksum is no signature, though: who can
    write the files can write it too.

    Args:
        folder: where it was saved.
        model: for a program of your own, a function that builds it (or one such module).
        guide: the same for its guide, or one of Pyro's classes, as `fit` takes it. Not needed for
            AutoNormal, AutoDiagonalNormal, AutoMultivariateNormal, AutoLowRankMultivariateNormal
            and AutoDelta, which are rebuilt on the model that is loaded.
        parts: classes of your own that the description names.

    Raises:
        FileNotFoundError: no explainer there.
        lexppl.saving.UnreadableFileError: a `ValueError` that names the file: damaged, of a newer
            version, not of this library, or of parts that are not known.
        ValueError: a model that needs `model=`, weights that are not of the one given, or a model
            whose latents are not, in their order, those that the guide was fitted to.
    """
    folder = Path(folder)
    for name in (WEIGHTS, DESCRIPTION):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}; it is not a saved explainer")
    described = _description(folder / DESCRIPTION)
    if described.get("format") == FORMAT or WEIGHTS_CHECKSUM in described:
        refuse_changed(
            folder / WEIGHTS, checksum(folder / WEIGHTS), described.get(WEIGHTS_CHECKSUM)
        )
    with refused_by_name(folder / WEIGHTS):
        weights = load_file(folder / WEIGHTS)
    with refused_by_name(folder / DESCRIPTION):
        fields = result_fields(described)
        sampler = sampler_fields(described)
        count = len(fields["best_epoch"])
        allowed = {**known_parts(), **{part.__name__: part for part in parts}}
        limits = BuildLimits(weights)
        # Files of before have no columns.
        weights.setdefault(f"{ROW}0", torch.zeros(()).expand(1, *fields["event_shape"]))
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
            told = " ".join(str(error).split())
            if given is not None:
                raise ValueError(
                    f"the weights in {self.folder} are not those of the {self.kind} that "
                    f"{self.kind}= gives: {told}"
                ) from error
            reason = f"its weights are not those of what {DESCRIPTION} describes: {told}"
            raise UnreadableFileError(self.folder / WEIGHTS, reason) from error
        with refused_by_name(self.folder / DESCRIPTION):
            for number in self.numbers:
                _set(module, number, replicate)
        return module.eval()

    def _built(self) -> nn.Module:
        refuse_sizes(self.described, self.weights)
        # What modules draw as initial weights is overwritten, and must not move the global state.
        with torch.random.fork_rng(devices=[]), self.limits:
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
