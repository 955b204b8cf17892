"""Does the choice of features itself tell the answer, and does the meter notice?

S1, S2, S3, and a three-way switch on correlated features (`switch`), whose pair of features shows
by its being kept which way the switch stands.

    python benchmarks/leaks.py                            # all explainers, five data sets: hours
    python benchmarks/leaks.py --explainers truth random  # those built by hand take a minute each
    python benchmarks/leaks.py --sets S1 --data-sets 1 --epochs 60
    python benchmarks/leaks.py --sets switch --data-sets 1 --epochs 150
    python benchmarks/leaks.py --small                    # to see that it runs

The encode-meter, fitted on 10,000 rows of no other fit, against the oracle's on the same rows and
labels, and EVAL-X, fitted on 10,000 training rows, beside it. By hand: the truth's masks; masks at
random; a cheat that keeps x11 and one of two idle features, which of them says the likelier label,
and its twin that takes one at random; the branch's features without the switch; and the two
features that serve EVAL-X best, row by row.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from encode_oracle import Redraw, Selection, of_function, oracle_encode_meter
from record import Records, options_of, timed
from switch_oracle import ThreeWaySwitchOracle, three_way_switch
from torch import Tensor

from lexppl.data import Dataset, SyntheticSet, synthetic
from lexppl.evaluation import (
    Oracle,
    encode_meter,
    fit_evalx,
    predictive_log_likelihood,
    selection_scores,
    stripe_x,
)
from lexppl.evaluation.evalx import EvalX
from lexppl.inference import FitResult, System, fit
from lexppl.inference.predictive import drawing
from lexppl.models import ConstantImputer
from lexppl.models.imputers import imputer_of
from lexppl.systems import base_x, l2x, lex, real_x, suwr

SWITCHED = "switch"
K: Mapping[str, int] = {"S1": 5, "S2": 5, "S3": 5, SWITCHED: 3}
# λ of the REAL-X paper over the mean of the 11 entries: .05, .05, .1.
REAL_X_PENALTY = {"S1": 0.05 / 11, "S2": 0.05 / 11, "S3": 0.1 / 11}
OWN = {"suwr": {"batch_size": 100, "weight_decay": 1e-4}}
"""Of an explainer's training: SUWR needs many steps more than it needs rows in each, and with
more decay its predictor does not learn a product of features that few masks keep together."""
BY_HAND = ("truth", "random", "leaking", "twin", "no switch", "best two")
OF_THE_SWITCH = ("truth", "random", "no switch", "l2x", "lex constant", "lex gaussian")
LEARNED = ("l2x", "base_x", "real_x", "lex constant", "lex gaussian", "suwr")
FEW = {"best two": 1_000, "suwr": 50}
"""Rows of the oracle's meter where a redraw is dear: all pairs, or 2^k calls for k kept."""
CORRELATED = 500
"""Rows of it where hidden features are drawn given the kept ones."""
SAME = ("set", "explainer", "seed", "epochs")
LINE = (
    "{set} {explainer:12s} data {seed}: meter {meter:.4f} [{lower:.4f}, {upper:.4f}], oracle "
    "{oracle:.4f} ({oracle_at_y:.4f} at the labels), apart {apart:.4f}; EVAL-X {eval_x:.4f} TPR "
    "{tpr:.3f} FDR {fdr:.3f}, {seconds:.0f} s"
).format

Masks = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """A data set's law.

    Args:
        name: of the set.
    """

    name: str

    @cached_property
    def oracle(self) -> Oracle | ThreeWaySwitchOracle:
        return ThreeWaySwitchOracle() if self.name == SWITCHED else Oracle(self.name)

    @property
    def control(self) -> int:
        return self.oracle.distribution.control

    @property
    def features(self) -> int:
        return self.oracle.distribution.n_features

    @property
    def redraw(self) -> Redraw | None:
        """Of hidden features; None where all are independent."""
        return self.oracle.redrawn if self.name == SWITCHED else None

    def rows(self, count: int, seed: int) -> Dataset:
        if self.name == SWITCHED:
            return three_way_switch(count, seed=seed)
        return synthetic(self.name, rows=count, seed=seed)


def by_hand(name: str, problem: Problem) -> tuple[Masks, Selection]:
    """From rows to masks, and how likely a row has a mask."""
    oracle, switch = problem.oracle, problem.control
    law = oracle.distribution
    if name in ("leaking", "twin"):
        return idle_pair(name, law)

    def no_switch(x: Tensor) -> Tensor:
        mask = law.truth(x)
        mask[:, switch] = 0.0
        return mask

    def best_two(x: Tensor) -> Tensor:
        return oracle.best(x, 2)[0]

    if name == "random":
        return lambda x: torch.bernoulli(torch.full_like(x, 0.4)), as_likely_as_any
    sure = {"truth": law.truth, "no switch": no_switch, "best two": best_two}
    return sure[name], of_function(sure[name])


def as_likely_as_any(x: Tensor, masks: Tensor) -> Tensor:
    """Of masks that know nothing of x."""
    return x.new_ones(len(x))


def idle_pair(name: str, law: SyntheticSet) -> tuple[Masks, Selection]:
    """The switch and one of two idle features: which of them says the label, or is drawn."""
    used = {feature for branch in law.branches for feature in branch.features}
    idle = sorted(set(range(law.control)) - used)[:2]

    def pair(x: Tensor, first: Tensor) -> Tensor:
        mask = torch.zeros_like(x)
        mask[:, law.control], mask[:, idle[0]], mask[:, idle[1]] = 1.0, first, 1.0 - first
        return mask

    def leaking(x: Tensor) -> Tensor:
        return pair(x, (law.log_f(x) < 0).to(x.dtype))

    if name == "leaking":
        return leaking, of_function(leaking)
    return lambda x: pair(x, torch.bernoulli(torch.full_like(x[:, 0], 0.5))), as_likely_as_any


def system_of(name: str, problem: Problem, train: Dataset) -> System:
    """A system to learn the masks."""
    size, k = problem.features, K[problem.name]
    if name == "l2x":
        return l2x(size, classes=2, k=k)
    if name in ("base_x", "real_x"):
        factory = base_x if name == "base_x" else real_x
        return factory(size, classes=2, penalty=REAL_X_PENALTY[problem.name])
    if name == "suwr":
        return suwr(size, classes=2, most=k, penalty=0.01)
    imputer = ConstantImputer(0.0)
    if name == "lex gaussian":
        correlated = problem.name == SWITCHED
        gaussian = "conditional-gaussian" if correlated else "gaussian"
        imputer = imputer_of(gaussian, train.x, seed=0)
    parts = {"hidden": (200, 200), "predictor_hidden": (200, 200, 200), "imputer": imputer}
    return lex(size, classes=2, k=k, folds=1, towards=0.5, unit=1.0, **parts)


def of_result(result: FitResult) -> tuple[Masks, Selection]:
    """The masks of a fitted explainer, one draw a row, and how likely they are."""
    selector = result.model.eval().selector

    def masks(x: Tensor) -> Tensor:
        drawn = selector(x).sample()
        return drawn.sum(-2) if drawn.dim() > x.dim() else drawn

    def selection(x: Tensor, mask: Tensor) -> Tensor:
        law = selector(x)
        sequence = hasattr(law, "set_log_prob")
        return (law.set_log_prob(mask) if sequence else law.log_prob(mask)).exp()

    return masks, selection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["S1", "S2", "S3", SWITCHED])
    parser.add_argument("--explainers", nargs="+", default=[*BY_HAND, *LEARNED])
    parser.add_argument("--data-sets", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="seed of the first data set")
    parser.add_argument("--epochs", type=int, default=300, help="of the explainers that learn")
    options = options_of(parser, small={"data_sets": 1, "epochs": 2, "sets": ["S1"]})
    rows, batch = (1_000, 100) if options.small else (10_000, 1_000)
    short = {"epochs": 2} if options.small else {}

    @cache
    def judge_of(name: str, seed: int) -> EvalX:
        train = problems[name].rows(rows, seed)
        return fit_evalx(
            train, seed=seed, **{"epochs": 40, "batch_size": 500, "progress": False, **short}
        )

    problems = {name: Problem(name) for name in options.sets}
    records = Records("leaks", SAME, LINE, options)
    runs = (
        {
            "set": name,
            "explainer": explainer,
            "seed": seed,
            "epochs": options.epochs if explainer in LEARNED else 0,
        }
        for seed in range(options.first, options.first + options.data_sets)
        for name in options.sets
        for explainer in options.explainers
        if name != SWITCHED or explainer in OF_THE_SWITCH
    )
    for run in records.due(runs):
        name, explainer, seed = run["set"], run["explainer"], run["seed"]
        problem = problems[name]
        train, test = problem.rows(rows, seed), problem.rows(rows, 1000 + seed)
        oracle = problem.oracle
        judge = judge_of(name, seed)
        gap = None
        with records.run(run) as record:
            if explainer in LEARNED:
                training = {"epochs": options.epochs, "batch_size": batch, "seed": seed}
                training |= OWN.get(explainer, {})
                with timed(record):
                    system = system_of(explainer, problem, train)
                    result = fit(system, train, valid=0.1, **training, progress=False)
                make, selection = of_result(result)
                likely = predictive_log_likelihood(result, test.x, test.y, masks=100)[result.best]
                best = oracle.log_likelihood(test.x, test.y, test.truth).double().mean()
                gap = float(best - likely.double().mean())
            else:
                make, selection = by_hand(explainer, problem)
            with drawing(seed):
                masks = make(test.x)
            dear = FEW.get(explainer) or (CORRELATED if name == SWITCHED else None)
            few = slice(0, dear)
            truth = oracle_encode_meter(
                selection,
                masks[few],
                oracle,
                test.x[few],
                test.y[few],
                redraw=problem.redraw,
                most=2**13 if dear is None else 400,
            )
            meter = encode_meter(test.x, test.y, masks, seed=seed, **short)
            # A law that cannot tell has 0 at every row.
            found = 0.0 * meter.by_row if explainer == "suwr" else truth.log_ratio
            apart = meter.by_row[: len(found)] - found
            scores = judge.scores(test.x, test.y, masks)
            scores = selection_scores(masks, test.truth, control=problem.control)
            record |= {
                "meter": meter.value,
                "lower": meter.lower,
                "upper": meter.upper,
                "oracle": truth.value,
                "oracle_error": truth.standard_error,
                "oracle_at_y": float(found.mean()),
                "thin": truth.thin,
                "apart": float(apart.mean()),
                "apart_error": float(apart.std()) / len(apart) ** 0.5,
                "eval_x": scores.log_likelihood,
                "eval_x_oracle": float(oracle.log_likelihood(test.x, test.y, masks).mean()),
                "stripe_x": stripe_x(scores.log_likelihood, meter),
                "tpr": scores.tpr,
                "fdr": scores.fdr,
                "control_flow": scores.control_flow,
                "size": scores.mean_size,
                "gap": gap,
            }


if __name__ == "__main__":
    main()
