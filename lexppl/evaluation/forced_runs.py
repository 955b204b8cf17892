"""A fitted program on some rows, run again with forced masks on the same random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.explanation.layout.importance_kind import KINDS
from lexppl.explanation.masks.program_sites import MaskSite, ProgramSites, sites_of
from lexppl.explanation.named_rows import NamedRows, named_rows
from lexppl.inference.contexts import keep_parameters_local, seed_generators
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.objective.site import Site
from lexppl.inference.predictive import FittedProgram, drawing, row_chunks, rows_at_once
from lexppl.inference.training.result import FitResult

LARGEST_SEED = 2**62

T = TypeVar("T")

Read = Callable[[ParticleTrace, int], Tensor]
"""What is wanted of a run of l masks, `(l, B, …)`."""


class ForcedRuns:
    """A program on a chunk of B rows, run with forced masks on the same random numbers.

    What is drawn before the mask is drawn from one seed and what is drawn after it from another:
    of a mask that is given nothing is drawn, and the numbers that follow must be the same.

    Args:
        program: with L draws.
        mask: the site that is forced.
        args: the rows, as arguments of the program.
        imputations: K.
        seed: of the draws.
        read: what is wanted of a run.
    """

    def __init__(
        self,
        program: FittedProgram,
        mask: MaskSite,
        args: tuple[Tensor, Tensor | None],
        imputations: int,
        seed: int,
        read: Read,
    ) -> None:
        self._program, self._args, self._imputations = program, args, imputations
        self._mask, self._seed, self._read = mask, seed, read

    def drawn(self) -> tuple[list[Tensor], Tensor]:
        """The masks of each run, `(l, B, G)`, and what is read of all, `(L, B, …)`.

        Raises:
            ValueError: masks that have other values than 0 and 1.
        """
        masks, values = self._run(None)
        every = torch.cat(masks)
        if not bool(((every == 1) | (every == 0)).all()):
            raise ValueError(
                f"gains are of masks of 0 and 1; draws of {self._mask.name!r} have other values"
            )
        return masks, values

    def given(self, masks: Sequence[Tensor]) -> Tensor:
        """What is read with these masks, one for each run, in place of the drawn ones."""
        return self._run(masks)[1]

    def _run(self, given: Sequence[Tensor] | None) -> tuple[list[Tensor], Tensor]:
        masks: list[Tensor] = []
        values: list[Tensor] = []

        def draw(site: Site) -> Tensor | None:
            if site.name != self._mask.name:
                return None
            value: Tensor = site.distribution.sample() if given is None else given[len(masks)]
            seed_generators(self._seed + 2 * len(masks) + 1)
            return value

        runs = self._program.runs(self._args, self._imputations, draw=draw)
        while True:
            seed_generators(self._seed + 2 * len(masks))
            found = next(runs, None)
            if found is None:
                return masks, torch.cat(values)
            run, _ = found
            mask = torch.as_tensor(run.sites[self._mask.name].value)
            values.append(self._read(run, len(mask)))
            masks.append(mask)


class Forcing:
    """A fit and rows on which its first mask site is forced.

    Args:
        result: the fit, of masks that select.
        x: rows, `(N, *event)`: a tensor, or an array.
        y: what they observe, or None.
        masks: L draws a row.
        imputations: K.
        seed: of the draws.
        what: what is measured, for the message of a refusal.

    Raises:
        ValueError, TypeError: counts below 1; rows unlike those of the fit; masks that are not
            selections.
    """

    def __init__(
        self,
        result: FitResult,
        x: object,
        y: object = None,
        *,
        masks: int,
        imputations: int,
        seed: int,
        what: str,
    ) -> None:
        for name, count in (("masks", masks), ("imputations", imputations)):
            int_at_least(name, count)
        int_at_least("seed", seed, 0)
        self.rows: NamedRows = named_rows(result, x, y, None)
        for module in (*result.models, *result.guides):
            if isinstance(module, nn.Module):
                keep_parameters_local(module)
        with drawing(seed, self.rows.x.device):
            self.sites: ProgramSites = sites_of(result.model, self.rows.x[:1])
        self.rows.check_response(self.sites.response)
        self.mask = self.sites.masks[0]
        _refuse_soft(self.mask, what)
        self._result, self._masks, self._imputations = result, masks, imputations
        self._seed = seed

    def each(
        self,
        read: Read,
        work: Callable[[ForcedRuns, slice], T],
        rows_per_chunk: int | None = None,
    ) -> list[list[T]]:
        """What is found of each chunk of rows, for each replicate.

        Args:
            read: what is wanted of a run.
            work: with the runs of some rows.
            rows_per_chunk: rows that are run at once; None to choose by their size.
        """
        x = self.rows.x
        chunk = rows_at_once(
            x,
            self._masks * self._imputations,
            rows_per_chunk,
            self.sites.widest,
            self.sites.layers,
        )
        seeds = torch.Generator().manual_seed(self._seed)
        found = []
        for model, guide in zip(self._result.models, self._result.guides, strict=True):
            with drawing(_next(seeds), x.device):
                few = self.rows.arguments(slice(0, 1))
                program = FittedProgram(model, guide, few, self._masks)
                found.append(
                    [
                        work(self._runs(program, rows, _next(seeds), read), rows)
                        for rows in row_chunks(len(x), chunk)
                    ]
                )
        return found

    def class_names(self) -> tuple[str, ...] | None:
        """Names of the response's labels; None where it is no label.

        Raises:
            ValueError: the program has no response.
        """
        response = self.sites.response
        if response is None:
            raise ValueError("the program has no response 'y' whose prediction could be read")
        if response.labels is None:
            return None
        given = self._result.class_names
        named = given is not None and len(given) == len(response.labels)
        return tuple(map(str, given if named and given is not None else response.labels))

    def _runs(self, program: FittedProgram, rows: slice, seed: int, read: Read) -> ForcedRuns:
        args = self.rows.arguments(rows)
        return ForcedRuns(program, self.mask, args, self._imputations, seed, read)


def _refuse_soft(mask: MaskSite, what: str) -> None:
    if mask.kind not in (None, "selection"):
        raise ValueError(
            f"{what} are of selections, masks of 0 and 1; the site {mask.name!r} holds a "
            f"{KINDS[str(mask.kind)].label}, which is not kept or hidden"
        )


def _next(generator: torch.Generator) -> int:
    """A seed of one of many independent streams."""
    return int(torch.randint(LARGEST_SEED, (), generator=generator))
