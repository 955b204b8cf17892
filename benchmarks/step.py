"""What a training step costs, against a hand-written torch loop doing the same arithmetic.

    python benchmarks/step.py --again       # in the place of what was measured before
    python benchmarks/step.py --small       # to see that it runs

S3, batch 1000, L = 10 masks, K = 1, k-subset masks with k = 5 and Bernoulli masks, the networks of
the LEX paper, leave-one-out gradients, Adam. Both loops are run in turn, in one process.

Then `fit`'s own loop with networks of 64, L = 4, Bernoulli masks, batches of 64 and 512, against
the same by hand: an epoch of the one, then of the other, in the processor time of the thread where
there is one, which leaves out what other programs take. `control` is the hand-written loop against
a copy of itself. Two folds and R replicates in one product stand against the same one plain fit.
"""

import argparse
import math
import statistics
import time
import warnings

import torch
from record import Records, circumstances, options_of
from torch import nn

from lexppl.data import Dataset, synthetic
from lexppl.distributions import KSubset
from lexppl.inference import NestedIWAE, System, TrainingOptions, fit
from lexppl.inference.contexts import program_settings
from lexppl.inference.training.watch import Epoch
from lexppl.models import MLP, GaussianImputer
from lexppl.systems import lex

L, BATCH, K = 10, 1000, 5
WIDTH, FIT_L, STEPS = 64, 4, 12
SAME = ("loop", "law", "batch", "masks", "folds", "replicates", "threads")
LINE = (
    "{loop} {law:9s} batch {batch}: library {library_ms:.2f} ms, by hand {by_hand_ms:.2f} ms, "
    "median ratio of pairs {ratio:.3f}"
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


class FitByHand:
    """What `fit` minimises with networks of 64 and Bernoulli masks, written out."""

    def __init__(self, data: Dataset, batch: int) -> None:
        self.data, self.batch = data, batch
        self.selector = MLP(11, 11, (WIDTH, WIDTH), seed=0)
        self.predictor = MLP(11, 2, (WIDTH, WIDTH), seed=1)
        parameters = [*self.selector.parameters(), *self.predictor.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3, weight_decay=1e-3, fused=True)

    def epoch(self, progress: float) -> float:
        """Seconds of an epoch."""
        start = clock()
        x, y = self.data.x, self.data.y
        for places in torch.randperm(len(x)).split(self.batch):
            self._step(x[places], y[places], progress)
        return clock() - start

    def _step(self, x: torch.Tensor, y: torch.Tensor, progress: float) -> None:
        self.optimizer.zero_grad()
        logits = self.selector(x)
        rates = torch.sigmoid(logits)
        with torch.no_grad():
            mask = torch.bernoulli(rates.expand(FIT_L, -1, -1))
        log_q = -nn.functional.binary_cross_entropy_with_logits(
            logits.expand(FIT_L, -1, -1), mask, reduction="none"
        ).sum(-1)
        x_imputed = torch.where(mask == 1, x, torch.randn(FIT_L, *x.shape))
        outputs = torch.log_softmax(self.predictor(x_imputed), -1)
        log_w = outputs.gather(-1, y.expand(FIT_L, -1).unsqueeze(-1)).squeeze(-1)
        bound = torch.logsumexp(log_w, 0) - math.log(FIT_L)
        with torch.no_grad():
            others = (log_w.sum(0) - log_w) / (FIT_L - 1)
            alone = torch.eye(FIT_L, dtype=torch.bool)[..., None]
            replaced = torch.where(alone, others, log_w[None])
            signal = bound - (torch.logsumexp(replaced, 1) - math.log(FIT_L))
        size = rates.sum(-1)
        entropy = nn.functional.binary_cross_entropy_with_logits(
            logits, rates, reduction="none"
        ).sum(-1)
        bonus = entropy + size * math.log(0.8) + (11 - size) * math.log(0.2)
        annealing, penalty = max(0.0, 0.1 - progress / 6), min(1.0, max(0.0, 2 * progress - 0.6))
        loss = -(bound.sum() + (log_q * signal).sum()) / len(x)
        loss = loss - annealing * bonus.mean() + 0.02 * penalty * size.mean()
        loss.backward()
        self.optimizer.step()


def clock() -> float:
    """Seconds that this thread has had of the processor; of several threads, on the wall."""
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


def small_lex(folds: int) -> System:
    """LEX with networks of 64."""
    widths = (WIDTH, WIDTH)
    parts = {"imputer": GaussianImputer(), "hidden": widths, "predictor_hidden": widths}
    return lex(11, classes=2, penalty=0.02, folds=folds, **parts)


def fit_against(run: dict[str, int | str], data: Dataset, epochs: int) -> dict[str, float]:
    """Milliseconds a step of `fit` and of what stands against it, epoch by epoch in turn."""
    batch = int(run["batch"])
    hand, copy = FitByHand(data, batch), FitByHand(data, batch)
    ours, theirs, copies, last = [], [], [], [0.0]

    def in_turn(epoch: Epoch) -> None:
        ours.append(clock() - last[0])
        theirs.append(hand.epoch(epoch.progress))
        copies.append(copy.epoch(epoch.progress))
        last[0] = clock()

    fit(
        small_lex(int(run["folds"])),
        data,
        valid=None,
        batch_size=batch,
        epochs=epochs + 2,
        replicates=int(run["replicates"]),
        training=TrainingOptions(callbacks=[in_turn]),
        progress=False,
    )
    # The first epoch's time holds the preparation too.
    ours, theirs, copies = ours[2:], theirs[2:], copies[2:]
    steps = len(data.x) / batch / 1e3
    return {
        "library_ms": statistics.median(ours) / steps,
        "by_hand_ms": statistics.median(theirs) / steps,
        "ratio": statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
        "control": statistics.median(a / b for a, b in zip(copies, theirs, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    options = options_of(parser, small={"rounds": 2})
    batch = BATCH // 10 if options.small else BATCH
    data = synthetic("S3", rows=batch, seed=0)
    threads = circumstances()["threads"]
    size = {"loop": "step", "batch": batch, "masks": L, "threads": threads}
    records = Records("step", SAME, LINE, options)
    for run in records.due({**size, "law": law} for law in ("k-subset", "bernoulli")):
        taken = times(run["law"], data, options.rounds)
        pairs = zip(taken["library"], taken["by hand"], strict=True)
        medians = {
            "library_ms": statistics.median(taken["library"]),
            "by_hand_ms": statistics.median(taken["by hand"]),
            "ratio": statistics.median(ours / theirs for ours, theirs in pairs),
        }
        records.add({**run, **medians})
    of_fit = {"loop": "fit", "law": "bernoulli", "masks": FIT_L, "threads": threads}
    sizes = [(64, 1, 1), (512, 1, 1), (64, 2, 1), (512, 2, 1), (64, 1, 4), (64, 1, 16), (64, 1, 64)]
    runs = [
        {**of_fit, "batch": rows, "folds": folds, "replicates": replicates}
        for rows, folds, replicates in (sizes[:1] if options.small else sizes)
    ]
    for run in records.due(runs):
        steps = 2 if options.small else STEPS
        data = synthetic("S3", rows=int(run["batch"]) * steps, seed=0)
        with program_settings(validate=False), warnings.catch_warnings(action="ignore"):
            records.add({**run, **fit_against(run, data, options.rounds)})


if __name__ == "__main__":
    main()
