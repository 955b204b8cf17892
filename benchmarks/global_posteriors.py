"""How wide the posteriors of each inference are, against the exact ones, and what they cost.

    OMP_NUM_THREADS=1 python benchmarks/global_posteriors.py --sets 100     # hours
    python benchmarks/global_posteriors.py --small                          # to see that it runs

Three programs, and sets simulated from a truth that is drawn from the prior:

- `regression`: ten weights of 1,000 rows, two columns correlated by .9 and one in a unit 50 times
  as large; the posterior is normal, in closed form.
- `explainer`: y ~ Bernoulli(σ(β z · x)), z_i ~ Bernoulli(σ(γ)), of three entries and 400 rows; the
  posterior of (log β, γ) on a grid, masks summed over.
- `network`: the same of two entries, whose γ is a network of 22 weights with priors; its posterior
  has no closed form, and what is judged are the ten selection probabilities of five rows.

Of each inference the sd ratio, its sd over the exact one, mean over quantities; the coverage of
central 90 % intervals; seconds a set. All have their defaults but for the number of draws. The
bootstrap is of the explainer with parameters in place of latents, which leaves the priors out.
"""

import argparse
import warnings
from typing import Any

import numpy as np
import torch
from posterior_problems import PROBLEMS, Problem, nuts_draws
from record import Records, options_of

from lexppl.inference.posterior.stochastic import SGHMC, SGLD, DiagonalVI, Ensemble, Laplace

NOMINAL = 0.9
SAME = ("problem", "method", "set")
LINE = (
    "{problem} {method} set {set}: sd ratio {sd_ratio}, covered {covered}, {seconds:.1f} s".format
)


def methods(small: bool) -> dict[str, Any]:
    """Each inference by its name, at its defaults but for the number of draws."""
    few = {"climb": 20} if small else {}
    chain = {"chains": 2, "samples": 3, "thin": 5, "warmup": 10} if small else {"samples": 100}
    return {
        "SGHMC": SGHMC(**chain, **few),
        "SGLD": SGLD(**chain, **few),
        "dense Laplace": Laplace(**few),
        "diagonal Laplace": Laplace(diagonal=True, **few),
        "diagonal VI": DiagonalVI(**few, **({"steps": 20} if small else {})),
        "deep ensemble": Ensemble(**few),
    }


def judged(problem: Problem, draws: np.ndarray, data: Any) -> dict[str, Any]:
    """Sd ratio and coverage of draws `(S, D)`."""
    low, high = np.quantile(draws, [(1 - NOMINAL) / 2, (1 + NOMINAL) / 2], axis=0)
    inside = (low <= data.truth) & (data.truth <= high)
    ratio = None
    if data.sd is not None:
        ratio = float(np.mean(draws.std(0, ddof=1) / data.sd))
    return {"sd_ratio": ratio, "covered": float(inside.mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--problem", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--method", nargs="*")
    options = options_of(parser, small={"sets": 1})
    records = Records("global_posteriors", SAME, LINE, options)
    every = methods(options.small)
    names = [
        n for n in ["NUTS", *every, "bootstrap"] if options.method is None or n in options.method
    ]
    runs = [
        {"problem": problem, "method": method, "set": place}
        for problem in options.problem
        for method in names
        for place in range(options.sets)
        if method != "bootstrap" or PROBLEMS[problem].bootstrap is not None
    ]
    warnings.simplefilter("ignore")
    for run in records.due(runs):
        problem = PROBLEMS[run["problem"]]
        data = problem.simulated(run["set"])
        with records.run(run) as record:
            if run["method"] == "bootstrap":
                draws = problem.bootstrap(data, run["set"], options.small)
            elif run["method"] == "NUTS":
                draws = nuts_draws(problem, data, run["set"], options.small)
            else:
                found = every[run["method"]].run(
                    problem.program(), data.rows, seed=run["set"], progress=False
                )
                draws = problem.quantities(found.samples)
            record |= judged(problem, draws, data)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
