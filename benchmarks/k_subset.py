"""What the exact k-subset distribution costs at the size of an image: draw, density and gradient.

    OMP_NUM_THREADS=1 python benchmarks/k_subset.py --again
    OMP_NUM_THREADS=1 python benchmarks/k_subset.py --small    # to see that it runs

G = 1568 mask entries (two 28 × 28 panels), k = 157, 64 rows of normal logits in float32: from the
logits to `L` draws, and their log-probability with its gradient. Milliseconds are the processor
time of the thread, which leaves out what other programs take, the least and the median of many
rounds. `reference` is ten products of 512 × 512 matrices, timed in turn with them, for machines
differ: the ratio to it compares them better.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from record import Records, options_of

from lexppl.distributions import KSubset

SAME = ("entries", "k", "rows", "draws", "threads")
LINE = (
    "G {entries}, k {k}, {rows} rows, L = {draws}: draw {draw_ms:.1f} ms, density and gradient "
    "{density_ms:.1f} ms, together {together_ms:.1f} ms (median {median_ms:.1f}), "
    "{ratio:.2f} times the reference of {reference_ms:.1f} ms"
).format


def work(entries: int, k: int, rows: int, draws: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, entries, generator=generator).requires_grad_()
    fixed = KSubset(logits, k).sample((draws,))
    matrix = torch.randn(512, 512, generator=generator)

    def law() -> KSubset:
        return KSubset(logits, k, validate_args=False)

    def draw() -> None:
        with torch.no_grad():
            law().sample((draws,))

    def density() -> None:
        law().log_prob(fixed).sum().backward()

    def together() -> None:
        distribution = law()
        distribution.log_prob(distribution.sample((draws,))).sum().backward()

    def reference() -> None:
        for _ in range(10):
            matrix @ matrix

    return {"draw": draw, "density": density, "together": together, "reference": reference}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--rows", type=int, default=64)
    options = options_of(parser, {"rounds": 2, "rows": 2})
    records = Records("k_subset", SAME, LINE, options)
    size = {"entries": 1568, "k": 157, "rows": options.rows}
    runs = [{**size, "draws": draws, "threads": torch.get_num_threads()} for draws in (1, 4)]
    for run in records.due(runs):
        tasks = work(**{name: run[name] for name in ("entries", "k", "rows", "draws")})
        taken: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(options.rounds + 1):
            for name, task in tasks.items():
                start = time.thread_time()
                task()
                taken[name].append(1e3 * (time.thread_time() - start))
        least = {f"{name}_ms": min(values[1:]) for name, values in taken.items()}
        median = statistics.median(taken["together"][1:])
        ratios = zip(taken["together"][1:], taken["reference"][1:], strict=True)
        ratio = statistics.median(one / other for one, other in ratios)
        records.add({**run, **least, "median_ms": median, "ratio": ratio})


if __name__ == "__main__":
    main()
