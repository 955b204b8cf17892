"""The page "Priors on how much is kept": its programs, against sums over sixteen masks."""

import itertools
import re
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.special import comb, softmax
from scipy.stats import betabinom, poisson

from lexppl import explain
from lexppl.arviz_compatibility import group_of
from lexppl.effects import mask_particles

PAGE = Path(__file__).parents[2] / "docs" / "theory" / "priors_on_size.md"
MASKS = np.array(list(itertools.product((0.0, 1.0), repeat=4)))


@pytest.fixture(scope="module")
def page():
    """What the page's programs leave."""
    names: dict = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


def posterior(page, of_size):
    """E[z | y] under a prior of the masks that their size decides."""
    x, y, slope = (page[name].numpy().astype(float) for name in ("x", "y", "slope"))
    likelihood = [poisson.logpmf(y, np.exp((x * m * slope).sum(-1))).sum() for m in MASKS]
    size = MASKS.sum(-1).astype(int)
    return softmax(np.array(likelihood) + np.log([of_size(k) for k in size])) @ MASKS


def of_rate(page):
    return posterior(page, lambda k: page["RATE"] ** k * (1 - page["RATE"]) ** (4 - k))


def test_a_size_prior_in_the_law(page):
    sizes = page["sizes"].numpy()
    expected = posterior(page, lambda k: sizes[k] / comb(4, k))
    np.testing.assert_allclose(page["in_the_law"], expected, atol=1e-4)
    # Negative control: another prior of sizes.
    assert abs(expected - of_rate(page)).max() > 0.01


def test_a_guide_is_near_the_posterior(page):
    np.testing.assert_allclose(page["exact"], of_rate(page), atol=1e-4)
    np.testing.assert_allclose(page["in_the_model"], page["exact"], atol=0.05)


def test_a_guide_and_a_penalty_with_its_entropy_are_one(page):
    np.testing.assert_allclose(page["as_a_penalty"], page["in_the_model"], atol=2e-3)


def test_without_entropy_one_mask_is_left(page):
    share = page["without_entropy"].numpy()
    assert (np.minimum(share, 1 - share) < 0.1).all()
    uncertain = page["as_a_penalty"].numpy()
    assert np.minimum(uncertain, 1 - uncertain).max() > 0.1


def test_a_rate_that_is_drawn_and_one_summed_out_agree(page):
    expected = posterior(page, lambda k: betabinom.pmf(k, 4, 1, 3) / comb(4, k))
    np.testing.assert_allclose(page["collapsed"], expected, atol=1e-4)
    # Of 500 draws of the rate from 4,000 weighed ones; given it a probability has an sd below ½.
    assert abs(page["hierarchical"].numpy() - expected).max() < 4 * 0.25 / np.sqrt(400)


def test_a_law_that_does_not_read_x_is_named(page):
    told = group_of(explain(page["by_rate"], page["x"], draws=2), "predictions").attrs["draws"]
    assert "the law of 'mask' is one for all rows" in told


@pytest.mark.parametrize("reads", [False, True])
def test_so_is_one_of_rows_and_no_selector(reads):
    def program(x, y=None):
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            logits = x if reads else torch.zeros(2)
            z = pyro.sample("mask", dist.Bernoulli(logits=logits).to_event(1))
            pyro.sample("y", dist.Normal((x * z).sum(-1), 1.0), obs=y)

    told = group_of(explain(program, torch.randn(3, 2), draws=2), "predictions").attrs["draws"]
    assert ("is one for all rows" in told) == (not reads)
