"""A VAEAC fitted to rows, as an imputer."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyro.infer import TraceMeanField_ELBO
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least
from lexppl.inference import fit
from lexppl.models import MLP, VAEAC, VAEACImputer, VAEACProposal
from lexppl.models.imputers.imputer import check_training_rows
from lexppl.models.imputers.logistics import check_pixels
from lexppl.models.imputers.vaeac_networks import ImageDecoder, ImageEncoder, TableDecoder

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

    The program is :class:`lexppl.models.VAEAC` with its guide; it is fitted by :func:`lexppl.fit`
    under Pyro's `TraceMeanField_ELBO`, which has the divergence of the two normal distributions in
    closed form. Networks are multilayer perceptrons for tables, convolutional for images.

    Args:
        x: training rows, `(N, D)`, standardised, or images `(N, channels, H, W)` in [0, 1].
        latent: size of the latent variable.
        width: of the hidden layers, 200 for tables if None; channels, 32 for images.
        features: "normal" or "pixels"; the first for tables, the second for images if None.
        grouping: from mask entries to features, so that the masks it is fitted on are of the kind
            that an explainer draws; an entry for each feature, or pixel, if None.
        seed: of networks, batches and draws.
        epochs, batch_size, progress: of the fit.
        options: of :func:`lexppl.fit`, more of them.

    Raises:
        TypeError: when `x` is not a floating-point tensor.
        ValueError: rows that are not finite, of neither shape, fewer than 2, or pixels outside
            [0, 1].

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
    if x.ndim not in (2, 4):
        raise ValueError(
            f"x must be a table (N, D) or images (N, channels, H, W); it has shape {tuple(x.shape)}"
        )
    latent = int_at_least("latent", latent)
    features = ("normal" if x.ndim == 2 else "pixels") if features is None else features
    if features == "pixels":
        check_pixels(x)
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
    prior, decoder, proposal = _networks(x, latent, width, seeds)
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


def _networks(
    x: Tensor, latent: int, width: int | None, seeds: list[int]
) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Prior, decoder and proposal."""
    of_prior, of_decoder, of_proposal = seeds
    inputs = 2 * x.shape[1]
    if x.ndim == 2:
        hidden = (200 if width is None else width,) * 2
        return (
            MLP(inputs, 2 * latent, hidden, "silu", of_prior),
            TableDecoder(latent, x.shape[1], hidden, of_decoder),
            MLP(inputs, 2 * latent, hidden, "silu", of_proposal),
        )
    width = 32 if width is None else width
    widths = (width, 2 * width)
    return (
        ImageEncoder(inputs, 2 * latent, widths, of_prior),
        ImageDecoder(latent, x.shape[1], width, of_decoder),
        ImageEncoder(inputs, 2 * latent, widths, of_proposal),
    )
