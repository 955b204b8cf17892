"""What a training step costs, against a hand-written torch loop doing the same arithmetic.

    python benchmarks/step.py --again       # in the place of what was measured before
    python benchmarks/step.py --small       # to see that it runs

S3, batch 1000, L = 10 masks, K = 1, k-subset masks with k = 5 and Bernoulli masks, the networks of
the LEX paper, leave-one-out gradients, Adam. Both loops are run in turn, in one process.
"""

import argparse
import math
import statistics
import time

import torch
from record import Records, circumstances, options_of
from torch import nn

from lexppl.data import Dataset, synthetic
from lexppl.distributions import KSubset
from lexppl.inference import NestedIWAE
from lexppl.inference.contexts import program_settings
from lexppl.models import MLP
from lexppl.systems import lex

L, BATCH, K = 10, 1000, 5
SAME = ("law", "batch", "masks", "threads")
LINE = (
    "{law:9s} library {library_ms:.1f} ms, by hand {by_hand_ms:.1f} ms, median ratio of pairs "
    "{ratio:.3f}"
).format


class ByHand:
    """The same objective and gradient, written out for this one model."""

    def __init__(self, law: str) -> None:
        self.distribution = law
        self.selector = MLP(11, 11, (200, 200), seed=0)
        self.predictor = MLP(11, 2, (200, 200, 200), seed=1)
        parameters = [*self.selector.parameters(), *self.predictor.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        logits = self.selector(x)
        if self.distribution == "k-subset":
            law = KSubset(logits, K, validate_args=False)
            mask = law.sample((L,))
            log_q = law.log_prob(mask)
        else:
            with torch.no_grad():
                mask = torch.bernoulli(torch.sigmoid(logits).expand(L, -1, -1))
            log_q = -nn.functional.binary_cross_entropy_with_logits(
                logits.expand(L, -1, -1), mask, reduction="none"
            ).sum(-1)
        x_imputed = torch.where(mask == 1, x, torch.randn(L, *x.shape))
        outputs = torch.log_softmax(self.predictor(x_imputed), -1)
        log_w = outputs.gather(-1, y.expand(L, -1).unsqueeze(-1)).squeeze(-1)
        bound = torch.logsumexp(log_w, 0) - math.log(L)
        with torch.no_grad():
            others = (log_w.sum(0) - log_w) / (L - 1)
            replaced = torch.where(torch.eye(L, dtype=torch.bool)[..., None], others, log_w[None])
            signal = bound - (torch.logsumexp(replaced, 1) - math.log(L))
        loss = -(bound.sum() + (log_q * signal).sum()) / len(x)
        if self.distribution == "bernoulli":
            loss = loss + 0.02 * torch.sigmoid(logits).sum(-1).mean()
        loss.backward()
        self.optimizer.step()


class ByTheLibrary:
    """The program and objective that `fit` runs."""

    def __init__(self, law: str) -> None:
        options = {"k": K} if law == "k-subset" else {"penalty": 0.02}
        self.loss = NestedIWAE(masks=L)(lex(11, classes=2, **options).program(), None)
        self.optimizer = torch.optim.Adam(self.loss.parameters(), lr=1e-3, fused=True)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        (self.loss(x, y) / len(x)).backward()
        self.optimizer.step()


def times(law: str, data: Dataset, rounds: int) -> dict[str, list[float]]:
    """Milliseconds a step of either loop, in rounds of three steps each in turn."""
    with program_settings(validate=False):
        loops = {"library": ByTheLibrary(law), "by hand": ByHand(law)}
        taken: dict[str, list[float]] = {name: [] for name in loops}
        for round_ in range(rounds + 3):
            for name, loop in loops.items():
                start = time.perf_counter()
                for _ in range(3):
                    loop.step(data.x, data.y)
                if round_ >= 3:
                    taken[name].append((time.perf_counter() - start) / 3 * 1e3)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    options = options_of(parser, small={"rounds": 2})
    batch = BATCH // 10 if options.small else BATCH
    data = synthetic("S3", rows=batch, seed=0)
    size = {"batch": batch, "masks": L, "threads": circumstances()["threads"]}
    records = Records("step", SAME, LINE, options)
    for run in records.due({"law": law, **size} for law in ("k-subset", "bernoulli")):
        taken = times(run["law"], data, options.rounds)
        pairs = zip(taken["library"], taken["by hand"], strict=True)
        medians = {
            "library_ms": statistics.median(taken["library"]),
            "by_hand_ms": statistics.median(taken["by hand"]),
            "ratio": statistics.median(ours / theirs for ours, theirs in pairs),
        }
        records.add({**run, **medians})


if __name__ == "__main__":
    main()
