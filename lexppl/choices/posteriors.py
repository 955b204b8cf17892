"""How what all rows share can be given a posterior, by name."""

from collections.abc import Mapping
from dataclasses import dataclass

INFERENCES: Mapping[str, str] = {
    "nuts": "the No-U-Turn sampler, all masks summed out",
    "hmc": "Hamiltonian Monte Carlo, all masks summed out",
    "sghmc": "stochastic-gradient Hamiltonian Monte Carlo",
    "sgld": "stochastic-gradient Langevin dynamics",
    "laplace": "a normal distribution at the mode, by the Hessian",
    "diagonal-laplace": "the same without correlations",
    "vi": "a normal distribution for each weight, fitted",
    "ensemble": "maxima a posteriori from several starts",
}
"""Names of inferences, and what they are."""

GUIDES: Mapping[str, str] = {
    "normal": "a normal distribution for each weight",
    "low-rank": "a normal distribution with correlations of low rank",
    "multivariate-normal": "a normal distribution with all correlations",
}
"""Names of guides, and what they are."""

HAMILTONIAN = frozenset({"nuts", "hmc"})
"""Those that sum over every mask of every row at each step."""
POINTS = frozenset({"ensemble"})
"""Those whose draws are modes: they show how far fits agree, not how sure the rows leave one."""
NEED_BAYES = frozenset({"sghmc", "sgld", "laplace", "diagonal-laplace", "vi"})
"""Those of the library that the extra `bayes` brings."""
BAYES_LIBRARY = "posteriors"
WITH_PRIOR = ("lex",)
"""Methods whose weights can have a posterior by these names: their bound is one of the
likelihood."""
PRIOR_SCALE = 1.0
"""Standard deviation of the weights' normal prior, where nobody says."""


@dataclass(frozen=True)
class AskedPosterior:
    """A posterior of the weights, by an inference or by a guide.

    Args:
        prior: standard deviation of the weights' normal prior about 0.

    Example:
        >>> AskedPosterior("nuts", None, 1.0).words
        'nuts (the No-U-Turn sampler, all masks summed out), weights Normal(0, 1) before'
    """

    inference: str | None
    guide: str | None
    prior: float

    @property
    def words(self) -> str:
        """How the posterior is found, and from which prior."""
        if self.inference is not None:
            named = f"{self.inference} ({INFERENCES[self.inference]}), weights"
        else:
            named = f"guide {self.guide} ({GUIDES[str(self.guide)]}), the selector's weights"
        return f"{named} Normal(0, {self.prior:g}) before"
