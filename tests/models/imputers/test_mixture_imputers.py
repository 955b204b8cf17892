"""Imputers of mixtures and clusters against closed forms and quadrature, by z-scores, with
negative controls that must fail."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from torch import Tensor
from torch.autograd import gradcheck

from lexppl.models import (
    GaussianMixtureImputer,
    KMeansDataImputer,
    MixtureDataImputer,
    MixtureMeansImputer,
)
from lexppl.models.imputers.imputer import Imputer
from lexppl.models.imputers.mixture import ComponentDistribution, IndependentFeatures
from tests.distributions.goodness_of_fit import p_value
from tests.models.imputers.builders import assert_moments, largest_z_of
from tests.refusals import refusals

C, D, N = 3, 3, 8
WEIGHTS = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[-1.0, 0.5, 2.0], [0.3, -0.8, 0.2], [1.5, 1.0, -1.0]])
SCALES = np.array([[0.7, 1.0, 0.5], [1.2, 0.6, 0.8], [0.9, 0.8, 1.1]])
REFERENCE = MEANS[[0, 0, 0, 1, 1, 1, 2, 2]] + np.random.default_rng(3).normal(size=(N, D)).round(2)
ROWS = np.array([[0.4, -0.2, 0.7], [-0.9, 1.1, -0.3]])
HARD_MASKS = np.array(list(itertools.product([0.0, 1.0], repeat=D)))
SOFT_MASKS = np.array([[0.2, 0.9, 0.0], [0.7, 0.6, 0.8], [0.5, 0.4, 1.0], [1.0, 0.75, 0.25]])
CHANCE = 1e-6
"""Of a failure, for each test of right draws."""


def _imputers(dtype: torch.dtype = torch.float64) -> dict[str, Imputer]:
    mixture = [torch.tensor(v, dtype=dtype) for v in (WEIGHTS, MEANS, SCALES)]
    reference = torch.tensor(REFERENCE, dtype=dtype)
    return {
        "gaussian-mixture": GaussianMixtureImputer(*mixture),
        "mixture-means": MixtureMeansImputer(*mixture),
        "mixture-data": MixtureDataImputer(*mixture, reference),
        "kmeans-data": KMeansDataImputer(mixture[1], reference),
    }


NAMES = list(_imputers())
MIXTURES = NAMES[:3]


def _x(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(ROWS, dtype=dtype)


def _responsibilities(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """By densities, not logarithms: shape (C,)."""
    joint = WEIGHTS * np.prod(stats.norm.pdf(x, MEANS, SCALES) ** keep, axis=1)
    return joint / joint.sum()


def _nearest(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    chosen = int(np.argmin((keep * (x - MEANS) ** 2).sum(1)))
    return np.eye(C)[chosen]


def _row_weights(name: str) -> np.ndarray:
    """Of the reference rows in each component, shape (C, N)."""
    all_kept = np.ones(D)
    rule = _nearest if name == "kmeans-data" else _responsibilities
    members = np.array([rule(row, all_kept) for row in REFERENCE]).T
    return members / members.sum(1, keepdims=True)


def _component_moments(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Means (C, D) and second moments (C, D, D) of a component's features."""
    if name in ("mixture-data", "kmeans-data"):
        weights = _row_weights(name)
        return weights @ REFERENCE, np.einsum("cn,nd,ne->cde", weights, REFERENCE, REFERENCE)
    spread = SCALES**2 if name == "gaussian-mixture" else np.zeros_like(SCALES)
    second = np.einsum("cd,ce->cde", MEANS, MEANS)
    return MEANS, second + np.einsum("cd,de->cde", spread, np.eye(D))


def _entry_probabilities(name: str, x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The components' probabilities for each entry: without its own value where kept."""
    rule = _nearest if name == "kmeans-data" else _responsibilities
    rows = []
    for d in range(D):
        informed = keep.copy()
        if keep[d] > 0.5:
            informed[d] = 0
        rows.append(rule(x, informed))
    return np.array(rows)


def _moments(name: str, x: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (D,) and covariance (D, D) of what would stand in each entry, were it hidden."""
    probabilities = _entry_probabilities(name, x, keep)
    first, second = _component_moments(name)
    mean = np.einsum("dc,cd->d", probabilities, first)
    moment = np.outer(mean, mean)
    for d, e in itertools.product(range(D), repeat=2):
        if d == e or max(keep[d], keep[e]) <= 0.5:
            moment[d, e] = probabilities[d] @ second[:, d, e]
    return mean, moment - np.outer(mean, mean)


@pytest.mark.parametrize("as_bool", [False, True])
@pytest.mark.parametrize("name", MIXTURES)
def test_responsibilities_are_bayes_rule_on_the_kept_features(name: str, as_bool: bool) -> None:
    keep = torch.from_numpy(HARD_MASKS).unsqueeze(1)
    imputer = _imputers()[name]
    found = imputer.responsibilities(_x(), keep.bool() if as_bool else keep)
    assert found.shape == (len(HARD_MASKS), 2, C)
    for (i, mask), (j, row) in itertools.product(enumerate(HARD_MASKS), enumerate(ROWS)):
        expected = _responsibilities(row, mask)
        np.testing.assert_allclose(found[i, j], expected, rtol=1e-12)
        if not mask.all():  # the control: hidden features must not tell the component
            assert np.abs(expected - _responsibilities(row, np.ones(D))).max() > 1e-3
    np.testing.assert_allclose(found[0, 0], WEIGHTS, rtol=1e-12)
    changed = _x()
    changed[:, 1] += 100
    hides_it = imputer.responsibilities(changed, keep)[HARD_MASKS[:, 1] == 0]
    assert torch.equal(hides_it, imputer.responsibilities(_x(), keep)[HARD_MASKS[:, 1] == 0])


def test_fractional_masks_are_exponents_and_join_the_hard_ones() -> None:
    imputer = _imputers()["gaussian-mixture"]
    keep = torch.from_numpy(SOFT_MASKS).unsqueeze(1)
    found = imputer.responsibilities(_x(), keep)
    for (i, mask), (j, row) in itertools.product(enumerate(SOFT_MASKS), enumerate(ROWS)):
        np.testing.assert_allclose(found[i, j], _responsibilities(row, mask), rtol=1e-12)
    hard = torch.from_numpy(HARD_MASKS).unsqueeze(1)
    at_hard = imputer.responsibilities(_x(), hard)
    for step in (1e-3, 1e-6, 1e-9):
        inside = imputer.responsibilities(_x(), hard * (1 - 2 * step) + step)
        assert float((inside - at_hard).abs().max()) < 5 * step
    keep = torch.rand(4, 2, D, dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda keep: imputer.responsibilities(_x(), keep), keep)
    assert gradcheck(lambda keep: imputer(_x(), keep).mean, keep)


def test_a_feature_far_from_all_components_leaves_the_others_their_digits() -> None:
    """The second feature is the same in all components: it must tell nothing."""
    means, scales = [[0.0, 7.0], [1.0, 7.0]], [[1.0, 1e-4], [1.0, 1e-4]]
    imputer = GaussianMixtureImputer([0.5, 0.5], means, scales)
    x = torch.tensor([[0.75, 9.0]])
    expected = imputer.responsibilities(x, torch.tensor([1.0, 0.0]))
    assert torch.equal(imputer.responsibilities(x, torch.ones(2)), expected)
    # Of an entry alone: a large term of its own must cost the others none.
    means, scales = [[0.0, 0.0], [1.0, 1.0]], [[1.0, 1e-4], [1.0, 1e-4]]
    distribution = GaussianMixtureImputer([0.5, 0.5], means, scales)(x, torch.tensor([1.0, 1.0]))
    torch.testing.assert_close(
        distribution.hidden_distribution.mean[0, 1], expected[0, 1], rtol=1e-6, atol=0
    )


def test_density_of_fractional_masks() -> None:
    """One component for the entries with keep <= 1/2, one of its own for each of the others."""
    keep = torch.from_numpy(SOFT_MASKS).unsqueeze(1)
    distribution = _imputers()["gaussian-mixture"](_x(), keep)
    sample = distribution.rsample()
    for (i, mask), (j, row) in itertools.product(enumerate(SOFT_MASKS), enumerate(ROWS)):
        probabilities = _entry_probabilities("gaussian-mixture", row, mask)
        value = sample[i, j].numpy()
        density = 1.0
        together = np.ones(C)
        for d in np.flatnonzero(mask < 1):
            entry = stats.norm.pdf(
                value[d],
                mask[d] * row[d] + (1 - mask[d]) * MEANS[:, d],
                (1 - mask[d]) * SCALES[:, d],
            )
            if mask[d] > 0.5:
                density *= probabilities[d] @ entry
            else:
                together *= entry
        density *= _responsibilities(row, mask) @ together
        assert float(distribution.log_prob(sample)[i, j]) == pytest.approx(
            np.log(density), rel=1e-9
        )


@pytest.mark.parametrize("masks", [HARD_MASKS, SOFT_MASKS], ids=["hard", "soft"])
@pytest.mark.parametrize("name", NAMES)
def test_moments_are_the_closed_form_and_draws_have_them(name: str, masks: np.ndarray) -> None:
    """Draws of each fail with probability 1e-6 for a right distribution."""
    imputer, moments = _imputers()[name], partial(_moments, name)
    assert_moments(imputer, ROWS, masks, moments)
    for as_bool in (False, True)[: 1 + (masks is HARD_MASKS)]:
        largest, threshold = largest_z_of(imputer, ROWS, masks, moments, as_bool)
        assert largest < threshold


class _ToldByHidden(GaussianMixtureImputer):
    """Wrong on purpose: responsibilities from all features, hidden ones too."""

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        return super().hidden_distribution(x, torch.ones_like(keep))


class _ToldByNothing(GaussianMixtureImputer):
    """Wrong on purpose: the mixture's weights, whatever was kept."""

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        return super().hidden_distribution(x, torch.zeros_like(keep))


class _OwnValueTells(GaussianMixtureImputer):
    """Wrong on purpose: what stands against a kept entry is informed by that entry too."""

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        distribution = super().hidden_distribution(x, keep)
        every = distribution._scores().unsqueeze(-2).expand(*distribution._flat_shape, C)
        distribution._own_scores = lambda: every
        return distribution


class _Apart(IndependentFeatures):
    """Wrong on purpose: a component for each hidden entry."""

    def draw(self, component: Tensor) -> Tensor:
        mixed = component.expand(*component.shape[:-1], D)
        return super().draw(torch.stack([mixed[..., d].roll(d, 0) for d in range(D)], -1))


class _ComponentsApart(GaussianMixtureImputer):
    def component_features(self) -> IndependentFeatures:
        return _Apart(self.family, self.means, self.scales)


@pytest.mark.parametrize("wrong", [_ToldByHidden, _ToldByNothing, _OwnValueTells, _ComponentsApart])
def test_wrong_laws_fail_the_same_test(wrong: type[GaussianMixtureImputer]) -> None:
    masks = SOFT_MASKS if wrong is _OwnValueTells else HARD_MASKS
    imputer, moments = wrong(WEIGHTS, MEANS, SCALES), partial(_moments, "gaussian-mixture")
    largest, threshold = largest_z_of(imputer, ROWS, masks, moments)
    assert largest > threshold


@pytest.mark.parametrize("name", ["mixture-data", "kmeans-data"])
@pytest.mark.parametrize("as_bool", [False, True])
def test_rows_come_as_often_as_they_should(name: str, as_bool: bool) -> None:
    """Whole reference rows, each with its exact probability; fails with probability 1e-6."""
    keep = torch.from_numpy(HARD_MASKS[:-1]).unsqueeze(1)
    distribution = _imputers()[name](_x(), keep.bool() if as_bool else keep)
    draws = 20_000
    sample = distribution.expand((draws, *distribution.batch_shape)).sample().numpy()
    rule = _nearest if name == "kmeans-data" else _responsibilities
    for (i, mask), (j, row) in itertools.product(enumerate(HARD_MASKS[:-1]), enumerate(ROWS)):
        hidden = mask == 0
        same = (sample[:, i, j][:, None, hidden] == REFERENCE[:, hidden]).all(-1)
        assert (same.sum(1) == 1).all()
        probabilities = rule(row, mask) @ _row_weights(name)
        assert (same.sum(0)[probabilities == 0] == 0).all()
        drawn, possible = (torch.from_numpy(v) for v in (same.argmax(1), probabilities > 0))
        support, exact = possible.nonzero(), torch.from_numpy(probabilities)[possible]
        assert p_value(drawn[:, None], support, exact) > CHANCE / 14
        if len(support) > 2 and name != "kmeans-data":  # the control: equal chances
            assert p_value(drawn[:, None], support, exact * 0 + 1 / len(support)) < CHANCE


@pytest.mark.parametrize("uniform", [0.0, 1.0])
def test_no_impossible_draw_at_the_ends_of_the_uniform(
    uniform: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_the_end(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        # The largest that torch.rand gives is one step below 1.
        value = min(uniform, 1 - torch.finfo(dtype).eps / 2)
        return torch.full(shape, value, dtype=dtype, device=device)

    monkeypatch.setattr(torch, "rand", at_the_end)
    imputer = KMeansDataImputer(
        [[-9.0, 0.0], [0.0, 1.0], [9.0, 2.0]], [[-9.0, 5.0], [0.0, 1.0], [9.0, 6.0]]
    )
    # The middle cluster is the only one, and its row is between two without weight.
    for keep in (torch.tensor([1.0, 0.0]), torch.tensor([True, False])):
        assert float(imputer(torch.zeros(1, 2), keep).sample()[0, 1]) == 1.0
    many = GaussianMixtureImputer.fit(_training_rows(torch.float32), 20).weights
    distribution = MixtureMeansImputer(many, torch.arange(20.0).unsqueeze(-1), torch.ones(20, 1))(
        torch.zeros(1, 1), torch.zeros(1)
    )
    assert float(distribution.sample()) == (0 if uniform == 0 else 19)


def test_equally_near_clusters_give_way_to_the_first() -> None:
    imputer = KMeansDataImputer([[-1.0, 5.0], [1.0, 6.0]], [[-1.0, 5.0], [1.0, 6.0]])
    x = torch.tensor([[0.0, 0.0]])
    for keep in (torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor([True, False])):
        assert (imputer(x, keep).expand((50, 1)).sample()[..., 1] == 5).all()
    assert (imputer(x + 0.1, torch.tensor([1.0, 0.0])).expand((50, 1)).sample()[..., 1] == 6).all()


def _training_rows(dtype: torch.dtype = torch.float64, rows: int = 300) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    which = torch.multinomial(torch.tensor(WEIGHTS), rows, replacement=True, generator=generator)
    noise = torch.randn(rows, D, dtype=torch.float64, generator=generator)
    x = torch.from_numpy(3 * MEANS)[which] + torch.from_numpy(SCALES)[which] * noise
    return x.to(dtype)


def test_mixture_fit_is_scikit_learns_of_standardised_rows_whatever_the_units() -> None:
    x = _training_rows()
    rows = x.numpy()
    expected = GaussianMixture(3, covariance_type="diag", max_iter=500, random_state=4).fit(
        (rows - rows.mean(0)) / rows.std(0)
    )
    imputer = GaussianMixtureImputer.fit(x, components=3, seed=4)
    np.testing.assert_allclose(imputer.weights, expected.weights_, rtol=1e-9)
    np.testing.assert_allclose(
        imputer.means, rows.mean(0) + rows.std(0) * expected.means_, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(imputer.scales, rows.std(0) * np.sqrt(expected.covariances_))
    all_kept = imputer.responsibilities(x, torch.ones(D, dtype=torch.float64))
    np.testing.assert_allclose(
        all_kept, expected.predict_proba((rows - rows.mean(0)) / rows.std(0)), atol=1e-9
    )
    units = torch.tensor([1.0, 1e3, 1e-3], dtype=torch.float64)
    scaled = GaussianMixtureImputer.fit(x * units, components=3, seed=4)
    keep = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(
        scaled(x * units, keep).mean / units, imputer(x, keep).mean, rtol=1e-6, atol=1e-6
    )


def test_clusters_are_scikit_learns_the_largest_first() -> None:
    x = _training_rows()
    imputer = KMeansDataImputer.fit(x, components=4, seed=2)
    clusters = KMeans(4, n_init=10, random_state=2).fit(x.numpy())
    sizes = imputer.row_weights.sum(-1)
    assert (sizes.diff() <= 0).all()
    assert sizes.sum() == len(x)
    order = np.argsort(-np.bincount(clusters.labels_), kind="stable")
    np.testing.assert_allclose(imputer.centres, clusters.cluster_centers_[order])
    label = imputer.row_weights.argmax(0)
    np.testing.assert_array_equal(order[label.numpy()], clusters.labels_)
    few = KMeansDataImputer.fit(x, components=4, seed=2, reference=x[:1])
    assert few.centres.shape == (1, D)  # clusters without a reference row are left out
    distribution = few(x[:5], torch.zeros(D, dtype=torch.float64))
    assert torch.equal(distribution.sample(), x[:1].expand(5, D))


NAN, ONE, GAUSSIAN = float("nan"), torch.ones(1).double(), GaussianMixtureImputer
TWO = ([0.5, 0.5], [[0.0], [1.0]], [[1.0], [1.0]])


test_bad_arguments = refusals(
    (lambda: GAUSSIAN([1.0], [0.0], [1.0]), "means must have shape"),
    (lambda: GAUSSIAN([], [[]], [[]]), "means must have shape"),
    (lambda: GAUSSIAN([1.0], [[0.0]], [[1.0, 1.0]]), r"scales .* \(1, 1\); .* \(1, 2\)"),
    (lambda: GAUSSIAN([0.5, 0.5], [[0.0]], [[1.0]]), r"weights .* \(1,\); .* \(2,\)"),
    (lambda: GAUSSIAN([0.5], [[0.0]], [[1.0]]), "sum to 1; .* 0.5"),
    (lambda: GAUSSIAN([1.0, 0.0], *TWO[1:]), "weights must be positive"),
    (lambda: GAUSSIAN([1.0], [[0.0]], [[0.0]]), "scales must be positive"),
    (lambda: GAUSSIAN([1.0], [[NAN]], [[1.0]]), "means must be finite"),
    (lambda: MixtureMeansImputer(ONE, [[0.0]], [[1.0]]), TypeError, "must be of one type"),
    (lambda: MixtureDataImputer(*TWO, [[1.0, 2.0]]), r"shape \(N, 1\), as means"),
    (lambda: MixtureDataImputer(*TWO, [[NAN]]), "reference must be finite"),
    (lambda: MixtureDataImputer(*TWO, ONE[None]), TypeError, "must be of one type"),
    (lambda: KMeansDataImputer([0.0], [[0.0]]), r"must have shape \(C, \*event\)"),
    (lambda: KMeansDataImputer([[0.0]], torch.ones(0, 1)), r"shape \(N, 1\)"),
    (lambda: KMeansDataImputer([[0.0], [9.0]], [[0.0]]), "row 1 of centres has none"),
)
