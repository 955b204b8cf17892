"""Global latents as real numbers, and what is told of them apart from rows and masks."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from lexppl.effects import mask_particles
from lexppl.inference.posterior.global_latents import GlobalSites, latents_of, values_of
from tests.refusals import refused

X = torch.zeros(3, 2)
pytestmark = pytest.mark.usefixtures("local_parameters")


def program(x, y=None):
    pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    pyro.sample("spread", dist.HalfNormal(1.0))
    with pyro.plate("groups", 2):
        pyro.sample("shares", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("rows", len(x), dim=-1), mask_particles():
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def test_there_and_back_for_many_at_once():
    sites, _ = GlobalSites.of(program, (X,))
    assert sites.names == ("slope", "spread", "shares") and sites.dimensions == 2 + 1 + 2 * 2
    vectors = torch.randn(4, 5, sites.dimensions)
    values, log_jacobian = sites.constrained(vectors)
    assert values["shares"].shape == (4, 5, 2, 3) and log_jacobian.shape == (4, 5)
    torch.testing.assert_close(sites.vectors(values), vectors, rtol=1e-4, atol=1e-4)
    one, change = sites.constrained(vectors[1, 2])
    torch.testing.assert_close(one["shares"], values["shares"][1, 2])
    torch.testing.assert_close(change, log_jacobian[1, 2])


def test_the_log_jacobian_is_the_determinant():
    sites, _ = GlobalSites.of(program, (X,))
    u = torch.randn(sites.dimensions, dtype=torch.float64)

    def free(u):
        """θ but for the last of three shares, which the others say."""
        values, _ = sites.constrained(u)
        parts = (values["slope"], values["spread"][None], values["shares"][:, :2].flatten())
        return torch.cat(parts)

    exact = torch.linalg.slogdet(torch.func.jacrev(free)(u)).logabsdet
    torch.testing.assert_close(sites.constrained(u)[1], exact)


def test_a_plate_over_rows_is_found_without_its_name_and_without_y():
    found = latents_of(program, (X, None))
    assert found.row_plates == {"rows"} and not found.of_rows and "y" in found.in_particles
    assert latents_of(program, (X, X[:, 0])).row_plates == {"rows"}
    assert values_of(found)["shares"].shape == (2, 3)


def test_a_prior_without_a_support_is_refused_by_name():
    class Odd(dist.Normal):
        @property
        def support(self):
            raise NotImplementedError

    def odd(x):
        pyro.sample("odd", Odd(0.0, 1.0, validate_args=False))

    refused("prior of 'odd' states no support", GlobalSites.of, odd, (X,))
