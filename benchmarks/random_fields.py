"""Many dependent columns: 8 × 8 random fields with a faint pattern, white or smooth.

    python benchmarks/random_fields.py                              # 72 fits, an hour or two
    python benchmarks/random_fields.py --patterns fixed --seeds 1
    python benchmarks/random_fields.py --small                      # to see that it runs

A field is white noise, or white noise blurred with a width of 3 and scaled to variance 1. A cross
of five entries or a bar of three is added (fixed), multiplied into the field (product), added with
signs whose agreement is the label (exclusive), or put anywhere (moving). Nine tenths of the fields
are fitted on: by the table's defaults, by k at the pattern's size, and to a network's output (post
hoc). Precision is the share of the pattern among a field's most probable entries, as many as the
pattern has; a fresh network reads the fields with only the selected entries.
"""

import argparse

import numpy as np
import torch
from record import Records, options_of
from scipy.ndimage import gaussian_filter
from torch import nn

from lexppl import ExplainerClassifier

SAME = ("pattern", "field", "strength", "mode", "seed")
CROSS = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]])
BAR = np.array([[1, 1, 1]])
AMPLITUDES = {
    "fixed": {"white": 1.2, "smooth": 0.06},
    "product": {"white": 0.8, "smooth": 0.25},
    "exclusive": {"white": 1.5, "smooth": 0.3},
    "moving": {"white": 4.0, "smooth": 1.0},
}
SIZES = {"fixed": 8, "product": 8, "exclusive": 8, "moving": 4}
"""k of the fits of k: entries of the pattern, of the moving ones their mean."""
MODES = ("default", "k", "post hoc")
WIDTH, EPOCHS, RATE, BATCH = 128, 40, 2e-3, 128
"""Of the networks that stand beside the explainer."""


def line(**record):
    accuracy = " ".join(f"{record[name]:.3f}" for name in ("accuracy", "plain", "refitted"))
    return (
        f"{record['pattern']:9s} {record['field']:6s} × {record['strength']:g} {record['mode']:8s} "
        f"{record['seed']}: "
        f"accuracy {accuracy}, kept {record['kept']:.1f}, precision {record['precision']:.3f}, "
        f"{record['cpu_seconds']:.0f} s"
    )


def patterns(kind, labels, generator):
    """The pattern of each field, `(N, 8, 8)`."""
    found = np.zeros((len(labels), 8, 8))
    for field, label in zip(found, labels, strict=True):
        if kind == "moving":
            shape = BAR if label else CROSS
            shape = np.rot90(shape, generator.integers(2)) if label else shape
            top, left = (generator.integers(9 - side) for side in shape.shape)
            field[top : top + shape.shape[0], left : left + shape.shape[1]] = shape
        elif kind == "exclusive":
            sign = generator.choice([-1, 1])
            field[1:4, 1:4] = sign * CROSS
            field[6:7, 4:7] = (-sign if label else sign) * BAR
        elif label == 0:
            field[1:4, 1:4] = CROSS
        else:
            field[6:7, 4:7] = BAR
    return found


def fields(kind, smooth, rows, seed, strength=1.0):
    """Fields `(N, 64)`, labels `(N,)` and which entries say the label `(N, 64)`, shuffled."""
    generator = np.random.default_rng(seed)
    y = np.repeat([0, 1], rows // 2)
    pattern = patterns(kind, y, generator)
    noise = generator.normal(size=(rows, 8, 8))
    if smooth:
        noise = np.stack([gaussian_filter(field, 3) for field in noise])
    noise /= noise.std()
    amplitude = strength * AMPLITUDES[kind]["smooth" if smooth else "white"]
    x = noise * (1 - amplitude * pattern) if kind == "product" else noise + amplitude * pattern
    truth = (pattern != 0).reshape(rows, 64)
    if kind in ("fixed", "product"):
        truth = np.repeat(truth.any(0, keepdims=True), rows, 0)
    order = generator.permutation(rows)
    return x.reshape(rows, 64)[order].astype(np.float32), y[order], truth[order]


class Network(nn.Module):
    """Logits of a perceptron on standardised entries."""

    def __init__(self, x):
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("scale", x.std(0).clamp_min(1e-3))
        self.layers = nn.Sequential(
            nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH // 2), nn.ReLU(),
            nn.Linear(WIDTH // 2, 2),
        )  # fmt: skip

    def forward(self, x):
        return self.layers((x - self.mean) / self.scale)


def network(x, y, epochs, seed):
    """A network fitted to fields."""
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fitted = Network(x)
        optimizer = torch.optim.AdamW(fitted.parameters(), RATE, weight_decay=1e-2)
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(BATCH):
                optimizer.zero_grad()
                nn.functional.cross_entropy(fitted(x[rows]), y[rows]).backward()
                optimizer.step()
    return fitted.eval()


def accuracy(fitted, x, y):
    """Share of fields whose label the network predicts."""
    with torch.no_grad():
        return float((fitted(torch.as_tensor(x)).argmax(1).numpy() == y).mean())


def found(run, options):
    """One fit, its accuracy beside two networks', the number kept and its precision."""
    smooth, strength = run["field"] == "smooth", run["strength"]
    x, y, truth = fields(run["pattern"], smooth, options.rows, run["seed"], strength)
    fit = slice(0, int(0.9 * len(x)))
    held = slice(fit.stop, len(x))
    plain = network(x[fit], y[fit], options.epochs, run["seed"])
    settings = {"penalty": "auto", "random_state": run["seed"]}
    if options.small:
        settings |= {"epochs": 2, "replicates": 2}
    if run["mode"] == "k":
        settings |= {"k": SIZES[run["pattern"]], "penalty": None}
    elif run["mode"] == "post hoc":
        settings |= {"model": plain, "model_output": "logits"}
    explainer = ExplainerClassifier(**settings).fit(x[fit], y[fit])
    kept = explainer.importances(x)
    own = kept[held]
    sizes = truth[held].sum(1)
    share = [
        row[np.argsort(-q)[:size]].mean()
        for q, row, size in zip(own, truth[held], sizes, strict=True)
    ]
    masks = (kept > 0.5).astype(np.float32)
    only = np.concatenate([x * masks, masks], 1)
    fresh = network(only[fit], y[fit], options.epochs, run["seed"])
    return {
        "accuracy": float(explainer.score(x[held], y[held])),
        "plain": accuracy(plain, x[held], y[held]),
        "refitted": accuracy(fresh, only[held], y[held]),
        "kept": float(own.sum(1).mean()),
        "precision": float(np.mean(share)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", nargs="+", choices=list(AMPLITUDES), default=list(AMPLITUDES))
    parser.add_argument("--fields", nargs="+", default=["white", "smooth"])
    parser.add_argument("--strengths", nargs="+", type=float, default=[1.0], help="of AMPLITUDES")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the networks beside")
    small = {"patterns": ["fixed"], "fields": ["white"], "seeds": 1, "rows": 200, "epochs": 2}
    options = options_of(parser, small=small)
    records = Records("random_fields", SAME, line, options)
    runs = [
        dict(zip(SAME, (pattern, field, strength, mode, seed), strict=True))
        for seed in range(1, options.seeds + 1)
        for pattern in options.patterns
        for field in options.fields
        for strength in options.strengths
        for mode in options.modes
    ]
    for run in records.due(runs):
        with records.run(run) as record:
            record.update(found(run, options))


if __name__ == "__main__":
    main()
