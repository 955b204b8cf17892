"""Whether a graph gives what its program gives."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lexppl.inference.training.step import TermGradients


def disagreement(
    eager: TermGradients,
    graph: TermGradients,
    others: Iterable[tuple[Tensor, Tensor]] = (),
    rounded: torch.dtype | None = None,
) -> float:
    """The largest difference between two losses or gradients of a step, in units of what rounding
    may make of it; above 1 they differ.

    With `ε` the machine's precision of the type, a tensor `a` of one and `b` of the other,

        max |a − b| / (√ε max |a| + 100 ε max_over_all |a|):

    sums in another order differ by multiples of ε; a gradient that is zero but for rounding, such
    as that of a bias before batch norm, is judged by the size of the others.

    Args:
        eager: by the program.
        graph: by its graph, with the same draws.
        others: more pairs, such as running statistics; each is judged by itself.
        rounded: the type that products give gradients back in; None for that of the gradients.

    Example:
        >>> one = TermGradients(torch.ones(1), [torch.tensor([1.0, 2.0]), None])
        >>> two = TermGradients(torch.ones(1), [torch.tensor([1.0, 2.01]), None])
        >>> disagreement(one, one), disagreement(one, two) > 10
        (0.0, True)
    """
    lists = (
        (eager.learned, graph.learned),
        (eager.controls, graph.controls),
    )
    worst = _worst([eager.loss], [graph.loss])
    for ours, theirs in lists:
        if [one is None for one in ours] != [one is None for one in theirs]:
            return float("inf")
        present = [a for a in ours if a is not None], [b for b in theirs if b is not None]
        worst = max(worst, _worst(*present, 0.0 if rounded is None else torch.finfo(rounded).eps))
    return max([worst, *(_worst([a], [b]) for a, b in others)])


def _worst(ours: Sequence[Tensor], theirs: Sequence[Tensor], more: float = 0.0) -> float:
    """The largest of one list of tensors."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.numel()]
    if not pairs:
        return 0.0
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return float("inf")
    if not pairs[0][0].is_floating_point():
        return 0.0 if all(torch.equal(a, b) for a, b in pairs) else float("inf")
    precision = torch.finfo(pairs[0][0].dtype).eps
    sizes = torch.stack([a.nan_to_num(0.0, 0.0, 0.0).abs().max() for a, _ in pairs])
    gaps = torch.stack([_gap(a, b) for a, b in pairs])
    allowed = (precision**0.5 + more) * sizes + 100 * precision * sizes.max()
    ratios = torch.where(gaps == 0, 0.0, gaps / allowed)
    return float(ratios.nan_to_num(nan=float("inf")).max())


def _gap(ours: Tensor, theirs: Tensor) -> Tensor:
    """The largest difference; infinite and missing numbers are alike where both are."""
    alike = (ours == theirs) | (ours.isnan() & theirs.isnan())
    return torch.where(alike, 0.0, (ours - theirs).abs()).max()
