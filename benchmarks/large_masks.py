"""What an explainer of images with thousands of mask entries holds in memory.

    OMP_NUM_THREADS=1 python benchmarks/large_masks.py           # steps, 2,000 and 10,000 rows
    OMP_NUM_THREADS=1 python benchmarks/large_masks.py --small   # to see that it runs

LEX with k-subset masks of every pixel of 1 × 28 × 56 images of noise, G = 1568, k = 157, a small
convolutional selector and predictor, L = 4 masks, batches of 64. `train` takes steps of a fit, for
two numbers of steps; `explain` explains rows by its defaults. Each is a process of its own: the
memory is the most that it was resident at once, less what it was resident before, when libraries,
rows and networks were there; `result` is what the arrays of the posterior take of it.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from record import Records, options_of
from torch import Tensor, nn

from lexppl import explain
from lexppl.arviz_compatibility import group_of
from lexppl.inference import NestedIWAE, fit
from lexppl.models import (
    LEX,
    CategoricalLikelihood,
    ConstantImputer,
    Grouping,
    KSubsetSelector,
    Predictor,
)

HEIGHT, WIDTH, K, L, BATCH = 28, 56, 157, 4, 64
SAME = ("what", "number")
LINE = (
    "{what} {number}: {megabytes:.0f} MB above {before:.0f} MB, {result:.0f} MB of them the "
    "result; {cpu_seconds:.0f} s of the processor"
).format


class Selector(nn.Module):
    """Two convolutions, from images to a logit a pixel, `(N, H · W)`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1), nn.Flatten()
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Classifier(nn.Module):
    """Two convolutions of stride 2 and a linear layer, to two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * HEIGHT // 4 * WIDTH // 4, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(0, -4)).unflatten(0, x.shape[:-3])


def model() -> LEX:
    """LEX of images."""
    torch.manual_seed(0)
    return LEX(
        KSubsetSelector(Selector(), K),
        ConstantImputer(),
        Predictor(Classifier(), CategoricalLikelihood(), event_dim=3),
        grouping=Grouping(range(HEIGHT * WIDTH), event_shape=(1, HEIGHT, WIDTH)),
    )


def images(rows: int) -> tuple[Tensor, Tensor]:
    """Noise, with classes that follow its first panel's mean."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, 1, HEIGHT, WIDTH, generator=generator)
    return x, (x[..., : WIDTH // 2].mean((1, 2, 3)) > 0.5).long()


def resident() -> float:
    """Megabytes, at most so far."""
    kilobyte = 1024 if sys.platform == "linux" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kilobyte / 1e6


def trained(steps: int) -> dict[str, float]:
    """Steps of a fit."""
    x, y = images(BATCH * 4)
    program = model()
    before, start = resident(), time.process_time()
    fit(
        program,
        (x, y),
        objective=NestedIWAE(L),
        epochs=max(1, steps // 4),
        batch_size=BATCH,
        progress=False,
    )
    taken = time.process_time() - start
    return {
        "megabytes": resident() - before,
        "before": before,
        "result": 0.0,
        "cpu_seconds": taken,
    }


def explained(rows: int) -> dict[str, float]:
    """Rows explained by a fit of one epoch."""
    x, _ = images(rows)
    few = images(BATCH)
    fitted = fit(model(), few, objective=NestedIWAE(L), epochs=1, batch_size=BATCH, progress=False)
    before, start = resident(), time.process_time()
    posterior = explain(fitted, x)
    taken = time.process_time() - start
    groups = ("predictions", "sample_stats")
    size = sum(v.nbytes for name in groups for v in group_of(posterior, name).data_vars.values())
    return {
        "megabytes": resident() - before,
        "before": before,
        "result": size / 1e6,
        "draws": group_of(posterior, "predictions").sizes["draw"],
        "cpu_seconds": taken,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[2_000, 10_000])
    parser.add_argument("--steps", type=int, nargs="*", default=[8, 40])
    options = options_of(parser, {"rows": [20], "steps": [1]})
    runs = [{"what": "train", "number": steps} for steps in options.steps]
    runs += [{"what": "explain", "number": rows} for rows in options.rows]
    records = Records("large_masks", SAME, LINE, options)
    for run in records.due(runs):
        process = subprocess.run(
            [sys.executable, __file__, "--measure", run["what"], str(run["number"])],
            capture_output=True,
            text=True,
            check=True,
        )
        records.add({**run, **json.loads(process.stdout.splitlines()[-1])})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure = {"train": trained, "explain": explained}[sys.argv[2]]
        print(json.dumps(measure(int(sys.argv[3]))))
    else:
        main()
