"""Laws of masks against the list of all masks: numbers, masks, and the comparison itself."""

import torch
from torch import Tensor
from torch.autograd import grad


def numbers(*shape: int, scale: float = 1.5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, dtype=torch.float64, generator=generator) * scale
    return values.requires_grad_()


def masks_of(size: int) -> Tensor:
    """All masks of so many entries, `(2^G, G)`."""
    code = torch.arange(2**size).unsqueeze(-1)
    return ((code >> torch.arange(size)) & 1).double()


def of_sizes(weights: Tensor, log_sizes: Tensor) -> Tensor:
    """log p `(2^G, B)` of masks by a law of their size `(…, G + 1)` and log-weights given it."""
    size = masks_of(weights.shape[0].bit_length() - 1).sum(-1).long()
    log_p = torch.full_like(weights, -torch.inf)
    for k in range(log_sizes.shape[-1]):
        own = size == k
        log_p[own] = log_sizes[..., k] + weights[own].log_softmax(0)
    return log_p


def assert_equals_list(law, log_weights: Tensor, *parameters: Tensor) -> None:
    """Probabilities, moments, entropy, mode, support and gradients are those of the list.

    `log_weights` is `(2^G, B)` for :func:`masks_of`, −∞ for masks that cannot be drawn.
    """
    masks, log_p = masks_of(law.event_shape[0]), log_weights.log_softmax(0)
    p = log_p.exp()
    inside = p.max(-1).values > 0
    mean = p.mT @ masks
    exact = {
        "log_prob": (law.log_prob(masks[inside].unsqueeze(1)), log_p[inside]),
        "mean": (law.mean, mean),
        "variance": (law.variance, mean * (1 - mean)),
        "entropy": (law.entropy(), -(p[inside] * log_p[inside]).sum(0)),
    }
    for name, (value, reference) in exact.items():
        value = value.expand(reference.shape)
        assert (value - reference).abs().max() < 1e-10, name
        weights = torch.linspace(-1, 2, reference.numel(), dtype=torch.float64)
        weights = weights.reshape(reference.shape)
        for of in [each for each in parameters if each.numel()]:
            (gradient,) = grad((value * weights).sum(), of, retain_graph=True)
            (expected,) = grad((reference * weights).sum(), of, retain_graph=True)
            assert (gradient - expected.nan_to_num()).abs().max() < 1e-9, name
    listed = law.enumerate_support(expand=False)[(slice(None), *(0,) * len(law.batch_shape))]
    assert {*map(tuple, listed.tolist())} == {*map(tuple, masks[inside].tolist())}
    assert len(listed) == int(inside.sum())
    if hasattr(type(law), "support"):
        assert torch.equal(law.support.check(masks.unsqueeze(1)).any(-1), inside)
