"""How well risks put survival times in order."""

from __future__ import annotations

from torch import Tensor

from lexppl.extras import extra_library


def concordance_index(risk: Tensor, y: Tensor) -> float:
    """Harrell's C: of the pairs of rows of which it is known who had the event first, the share in
    which that row has the larger risk; pairs of one risk count a half.

    That of scikit-survival (`concordance_index_censored`), which the extra `survival` has. Rows of
    all strata are compared.

    Args:
        risk: of each row, `(N,)`, such as :func:`log_hazard_ratio` of one replicate; only its order
            counts.
        y: times and events, `(N, 2)`; further columns are not read.

    Returns:
        0 … 1; ½ of risks that know nothing.

    Raises:
        ValueError: other shapes, values that are not finite, no pair to compare.
        ImportError: scikit-survival is not installed.

    Source:
        Harrell, Califf, Pryor, Lee, Rosati. Evaluating the yield of medical tests. JAMA 247, 1982.
    """
    if risk.dim() != 1 or y.dim() != 2 or y.shape[1] < 2 or len(y) != len(risk):
        raise ValueError(
            f"risk must have shape (N,) and y (N, 2); they have {tuple(risk.shape)} and "
            f"{tuple(y.shape)}"
        )
    if not bool(risk.isfinite().all()) or not bool(y.isfinite().all()):
        raise ValueError("risk and y must be finite; they have NaN or infinite values")
    metrics = extra_library("sksurv.metrics", "survival")
    time, event = y[:, 0].double().cpu().numpy(), y[:, 1].cpu().numpy() == 1
    try:
        found = metrics.concordance_index_censored(event, time, risk.double().cpu().numpy())
    except (metrics.NoComparablePairException, ValueError) as error:
        raise ValueError(f"no two rows of y can be compared: {error}") from error
    return float(found[0])
