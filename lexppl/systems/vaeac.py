"""A VAEAC fitted to rows, as an imputer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyro.infer import TraceMeanField_ELBO
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least, shaped
from lexppl.inference import fit
from lexppl.models import MLP
from lexppl.models.imputers.imputer import check_training_rows
from lexppl.models.imputers.logistics import check_pixels
from lexppl.models.imputers.vaeac import (
    VAEAC,
    ImageDecoder,
    ImageEncoder,
    TableDecoder,
    VAEACImputer,
    VAEACProposal,
)
from lexppl.models.networks import initial_weights

__all__ = ["fit_vaeac"]


def fit_vaeac(
    x: Tensor,
    *,
    latent: int = 16,
    width: int | None = None,
    features: str | None = None,
    grouping: nn.Module | None = None,
    seed: int = 0,
    epochs: int = 100,
    batch_size: int = 100,
    progress: bool = False,
    **options: Any,
) -> VAEACImputer:
    """An imputer by a variational autoencoder with arbitrary conditioning, fitted to rows.

    The program is `VAEAC` under Pyro's `TraceMeanField_ELBO`: perceptrons for
    tables, convolutions for images.

    Args:
        x: training rows, `(N, D)`, standardised, or images `(N, channels, H, W)` in [0, 1].
        latent: size of the latent variable.
        width: of the hidden layers, 200 for tables if None; channels, 32 for images.
        features: "normal" or "pixels"; the first for tables, the second for images if None.
        grouping: from mask entries to features, for masks of the kind that an explainer draws.
        seed: of networks, batches and draws.
        epochs, batch_size, progress, options: of :func:`lexppl.fit`.

    Raises:
        TypeError: when `x` is not a floating-point tensor.
        ValueError: rows that are not finite, of neither shape, fewer than 2, or pixels outside [0,
            1].

    Source: Ivanov, Figurnov, Vetrov. Variational autoencoder with arbitrary conditioning. ICLR
    2019.

    Example:
        >>> import torch
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> imputer = fit_vaeac(x, latent=2, width=8, epochs=1)
        >>> imputer(x[:5], torch.tensor([1.0, 0.0, 0.0])).sample().shape
        torch.Size([5, 3])
    """
    check_training_rows(x)
    shaped("x", x, "N D", "N C H W")
    latent = int_at_least("latent", latent)
    features = ("normal" if x.ndim == 2 else "pixels") if features is None else features
    if features == "pixels":
        check_pixels(x)
    with initial_weights(int_at_least("seed", seed, 0)):
        prior, decoder, proposal = _networks(x, latent, width)
    program = VAEAC(prior, decoder, grouping, features).to(x.device, x.dtype)
    result = fit(
        program,
        (x,),
        guide=VAEACProposal(proposal, grouping).to(x.device, x.dtype),
        objective=TraceMeanField_ELBO(max_plate_nesting=1),
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        progress=progress,
        **options,
    )
    return VAEACImputer.of(result)


def _networks(x: Tensor, latent: int, width: int | None) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Prior, decoder and proposal."""
    channels, wide = x.shape[1], width or (200 if x.ndim == 2 else 32)
    encoder: Callable[[], nn.Module]
    if x.ndim == 2:
        decoder: nn.Module = TableDecoder(latent, channels, (wide, wide))
        encoder = partial(MLP, 2 * channels, 2 * latent, (wide, wide), "silu")
    else:
        decoder = ImageDecoder(latent, channels, wide)
        encoder = partial(ImageEncoder, 2 * channels, 2 * latent, (wide, 2 * wide))
    return encoder(), decoder, encoder()
