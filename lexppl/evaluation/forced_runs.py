"""Runs of a fitted program on rows with forced masks, on the same random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.explanation.names import named_rows
from lexppl.explanation.program_sites import sites_of
from lexppl.explanation.reading.masks import KINDS
from lexppl.inference.contexts import keep_parameters_local, seed_generators
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.objective.site import Site
from lexppl.inference.predictive import FittedProgram, drawing, row_chunks, rows_at_once
from lexppl.inference.training.result import FitResult

Read = Callable[[ParticleTrace, int], Tensor]
"""From a run of l masks to values `(l, B, …)`."""

Run = Callable[[Sequence[Tensor] | None], tuple[list[Tensor], Tensor]]
"""From masks, one `(l, B, G)` for each run of a chunk of B rows, or None to draw them, to the masks
and the values of all runs, `(L, B, …)`."""


class ForcedRuns:
    """A fit and rows on which its first mask site, which must select, is forced."""

    def __init__(
        self, result: FitResult, x: object, *, masks: int, imputations: int, seed: int, what: str
    ) -> None:
        int_at_least("masks", masks)
        int_at_least("imputations", imputations)
        int_at_least("seed", seed, 0)
        self.rows = named_rows(result, x, None, None)
        for module in (*result.models, *result.guides):
            if isinstance(module, nn.Module):
                keep_parameters_local(module)
        with drawing(seed, self.rows.x.device):
            self.sites = sites_of(result.model, self.rows.x[:1])
        self.rows.check_response(self.sites.response)
        self.mask = self.sites.masks[0]
        if self.mask.kind not in (None, "selection"):
            raise ValueError(
                f"{what} are of selections, masks of 0 and 1; the site {self.mask.name!r} holds a "
                f"{KINDS[str(self.mask.kind)].label}, which is not kept or hidden"
            )
        self._result, self._masks, self._imputations = result, masks, imputations
        self._seed = seed

    def each(self, read: Read, work: Callable[[Run, slice], Sequence[Tensor]]) -> list[Tensor]:
        """Tensors `(R, N, …)` that `work` makes of a chunk of rows and its runs, by replicate."""
        x, count = self.rows.x, self._masks * self._imputations
        chunk = rows_at_once(x, count, None, self.sites.widest, self.sites.layers)
        generator = torch.Generator().manual_seed(self._seed)

        def seed() -> int:
            return int(torch.randint(2**62, (), generator=generator))

        found = []
        for model, guide in zip(self._result.models, self._result.guides, strict=True):
            with drawing(seed(), x.device):
                program = FittedProgram(model, guide, self.rows.arguments(slice(0, 1)), self._masks)
                chunks = row_chunks(len(x), chunk)
                runs = ((partial(self._run, program, rows, seed(), read), rows) for rows in chunks)
                by_chunk = zip(*(work(run, rows) for run, rows in runs), strict=True)
                found.append([torch.cat(parts) for parts in by_chunk])
        return [torch.stack(each) for each in zip(*found, strict=True)]

    def class_names(self) -> tuple[str, ...] | None:
        """Names of the response's labels; None where it is no label."""
        if self.sites.response is None:
            raise ValueError("the program has no response 'y' whose prediction could be read")
        labels, names = self.sites.response.labels, self._result.class_names
        if labels is None:
            return None
        named = names is not None and len(names) == len(labels)
        return tuple(map(str, names if named and names is not None else labels))

    def _run(
        self,
        program: FittedProgram,
        rows: slice,
        seed: int,
        read: Read,
        forced: Sequence[Tensor] | None,
    ) -> tuple[list[Tensor], Tensor]:
        """What is drawn before the mask is from one seed and what is drawn after it from another: a
        forced mask draws nothing, and the numbers that follow must be the same."""
        masks: list[Tensor] = []
        values: list[Tensor] = []

        def draw(site: Site) -> Tensor | None:
            if site.name != self.mask.name:
                return None
            value: Tensor = site.distribution.sample() if forced is None else forced[len(masks)]
            seed_generators(seed + 2 * len(masks) + 1)
            return value

        runs = program.runs(self.rows.arguments(rows), self._imputations, draw=draw)
        while True:
            seed_generators(seed + 2 * len(masks))
            found = next(runs, None)
            if found is None:
                break
            mask = torch.as_tensor(found[0].sites[self.mask.name].value)
            values.append(read(found[0], len(mask)))
            masks.append(mask)
        if forced is None and not all(bool(((m == 1) | (m == 0)).all()) for m in masks):
            raise ValueError(
                f"gains are of masks of 0 and 1; draws of {self.mask.name!r} have other values"
            )
        return masks, torch.cat(values)
