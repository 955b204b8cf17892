"""The library on a GPU: the same numbers as on the processor, and what its steps cost.

    python benchmarks/gpu.py                              # eight minutes of an H100
    python benchmarks/gpu.py --only agree steps           # some sections
    python benchmarks/gpu.py --device cpu --small         # the same code without a GPU

Needs torch ≥ 2.11 with CUDA, pyro-ppl, arviz and the library's other dependencies; the cases of
`agree` are those of `tests/devices/cases.py`; `digits` needs MNIST under LEXPPL_DATA. A record is
written as each part ends, so that a run that is cut short has what it had.

*agree*: one step of every system, estimator, imputer, likelihood, penalty, guide and architecture
on the device and on the processor from the same weights and draws: the largest relative difference
of the loss, and of the parameters after a step of plain gradient descent at rate 1, which differ as
the gradients do. *whole*: of every system 20 steps, a fit that is cut short and goes on from its
checkpoint, `explain`, `save`, and `load` on the processor. *steps*: milliseconds a step of `fit`,
as it is and by recorded graphs, and of the same by hand in torch, as it is and as a CUDA graph.
*bf16*: its gain, and what LEX selects on S1 with it. *explained*: rows a second on the device and
on the processor. *processes*: a fit in a group of one process, by NCCL. *digits*: REAL-X's Table 2
of all 60,000 digits.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import digits
import torch
from judged_images import FOLDER
from judged_images import run as judge_images
from record import Records, options_of
from selection import judged
from speed_by_hand import BY_HAND, ByHand, system
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from lexppl import explain, load, save
from lexppl.data import synthetic
from lexppl.explanation import mask_means
from lexppl.inference import Checkpoints, FitResult, ReplicateData, System, TrainingOptions, fit
from lexppl.inference.contexts import seeded
from lexppl.models import GaussianImputer
from lexppl.systems import lex

sys.path.append(str(Path(__file__).parents[1]))
from tests.devices.cases import covering

SECTIONS = ("agree", "whole", "steps", "bf16", "explained", "processes", "digits")
SAME = ("section", "name", "dtype", "batch", "way", "device")
TIMED = ("LEX", "REAL-X", "L2X")
BATCHES = (1_000, 10_000, 65_536)
STEPS, EPOCHS, WIDTH = 10, 5, 200
"""Steps of an epoch that is timed, epochs, and the networks' width."""
RECORDED: dict[str, Any] = {"as it is": False, "recorded": "graph", "compiled": True}
"""Ways of `TrainingOptions(compile=)`."""


def line(**record: Any) -> str:
    """What is printed of a record."""
    left_out = ("machine", "versions", "python", "date", "threads", "largest")
    return ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
        for k, v in record.items()
        if k not in left_out
    )


class SameDraws(TorchDispatchMode):
    """Makes the random numbers of a device by the processor's generator, whose state stands for
    that of the device, so that runs on both have the same draws."""

    def __enter__(self) -> "SameDraws":
        self._patches = ExitStack()
        patched = partial(patch.object, torch.cuda)
        self._patches.enter_context(patched("get_rng_state", lambda device: torch.get_rng_state()))
        put_back = patched("set_rng_state", lambda state, device: torch.set_rng_state(state))
        self._patches.enter_context(put_back)
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._patches.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = next((a.device for a in args if isinstance(a, Tensor)), kwargs.get("device"))
        random = torch.Tag.nondeterministic_seeded in func.tags
        if not random or torch.device(device or "cpu").type == "cpu":
            return func(*args, **kwargs)
        # Contiguous, as draws are made in the order of memory.
        host = (Tensor, lambda value: value.cpu().contiguous(), (args, kwargs))
        args_there, kwargs_there = tree_map_only(*host)
        if kwargs.get("device") is not None:
            kwargs_there["device"] = torch.device("cpu")
        drawn = func(*args_there, **kwargs_there)
        if func._schema.is_mutable:
            return args[0].copy_(drawn)
        return tree_map_only(Tensor, lambda value: value.to(device), drawn)


def moved(value: Any, device: str, dtype: torch.dtype) -> Any:
    """A model, rows or options of a fit on a device, in a floating type."""
    if isinstance(value, Tensor):
        return value.to(device, dtype if value.is_floating_point() else value.dtype)
    if isinstance(value, nn.Module | System):
        return value.to(device).to(dtype)
    if isinstance(value, ReplicateData):
        return ReplicateData([moved(rows, device, dtype) for rows in value.sets])
    if isinstance(value, list | tuple):
        return type(value)(moved(part, device, dtype) for part in value)
    return value


def parameters_of(result: FitResult) -> list[Tensor]:
    """Fitted parameters and statistics, on the processor."""
    parts = [*result.models, *(guide for guide in result.guides if guide is not None)]
    return [
        value.detach().cpu()
        for part in parts
        for value in (*part.parameters(), *part.buffers())
        if value.is_floating_point()
    ]


def one_step(case: Any, device: str, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """Losses and parameters after a step of a case on a device."""
    options = {name: moved(value, device, dtype) for name, value in case.options.items()}
    options = {"optimizer": partial(torch.optim.SGD, lr=1.0), **options}
    with seeded(0):
        model = moved(case.model(), device, dtype)
    with SameDraws():
        rows = moved(case.train, device, dtype)
        result = fit(model, rows, **{**options, "epochs": 1, "valid": None, "progress": False})
    return torch.as_tensor(result.history.train), parameters_of(result)


def difference(values: Tensor, references: Tensor) -> float:
    """The largest difference of values from the references', relative where these are above 1."""
    if torch.equal(values, references):
        return 0.0
    return float(((values - references).abs() / references.abs().clamp(min=1.0)).max())


def agreement(group: str, dtype: torch.dtype, device: str, small: bool) -> dict[str, Any]:
    """Differences between the device and the processor over a group's cases."""
    cases = [
        (name, case)
        for kind, name, case in covering()
        if kind == group and not (dtype == torch.float64 and "bf16" in name)
    ]
    losses, gradients, failed = {}, {}, {}
    for name, case in cases[: 1 if small else None]:
        try:
            (value, parameters), (reference, others) = (
                one_step(case, place, dtype) for place in (device, "cpu")
            )
        except Exception as error:  # Every case is tried, and what failed is in the record.
            failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
            continue
        losses[name] = difference(value, reference)
        gradients[name] = max(map(difference, parameters, others), default=0.0)
    return {
        "cases": len(losses),
        "loss": max(losses.values(), default=math.nan),
        "gradient": max(gradients.values(), default=math.nan),
        "largest": dict(sorted(gradients.items(), key=lambda item: -item[1])[:5]),
        "failed": failed,
    }


def agree_runs(small: bool) -> Iterator[dict[str, Any]]:
    for group in dict.fromkeys(kind for kind, *_ in covering()):
        for dtype in ("float64",) if small else ("float64", "float32"):
            yield {"name": group, "dtype": dtype}


class _CutShortError(Exception):
    """Ends a fit at an epoch."""


def whole(device: str, small: bool) -> dict[str, Any]:
    """Every system fitted, cut short and gone on with, explained, saved and loaded."""
    different, failed, count = {}, {}, 0
    for name, case in [(n, c) for kind, n, c in covering() if kind == "systems"]:
        rows = moved(case.train, device, torch.float32)
        options = {**case.options, "epochs": 20, "valid": None, "progress": False}

        def cut(epoch: Any) -> None:
            if epoch.progress > 0.5:
                raise _CutShortError

        def build(case: Any = case) -> Any:
            with seeded(0):
                return moved(case.model(), device, torch.float32)

        try:
            with tempfile.TemporaryDirectory() as folder:
                states = Checkpoints(Path(folder) / "states", every_minutes=0)
                direct = fit(build(), rows, **options)
                with suppress(_CutShortError):
                    fit(
                        build(),
                        rows,
                        checkpoint=states,
                        training=TrainingOptions(callbacks=[cut]),
                        **options,
                    )
                result = fit(build(), rows, checkpoint=states, **options)
                pairs = zip(parameters_of(result), parameters_of(direct), strict=True)
                resumed = max(difference(a, b) for a, b in pairs)
                save(result, Path(folder) / "saved")
                x = rows[0][:5]
                means = mask_means(explain(result, x, draws=200))
                again = mask_means(explain(load(Path(folder) / "saved"), x.cpu(), draws=200))
                error = float(abs(means - again).max())
                # Means of 200 masks have a standard error of .035 at most, their difference .05.
                if resumed > 0 or error > 0.25 or math.isnan(error):
                    different[name] = [resumed, error]
        except Exception as error:  # As in `agreement`.
            failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
            continue
        count += 1
        if small:
            break
    return {"cases": count, "different": different, "failed": failed}


def synchronized() -> float:
    """Seconds, once the device has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def rows_on(device: str, count: int) -> tuple[Tensor, Tensor]:
    """Rows of S3."""
    data = synthetic("S3", rows=count, seed=0).to(device)
    return data.x, data.y


def library_ms(
    made: System, rows: tuple[Tensor, Tensor], batch: int, **options: Any
) -> tuple[float, str | None]:
    """Median milliseconds a step of `fit` over its epochs but two, and how steps were compiled."""
    marks: list[float] = []
    result = fit(
        made.to(rows[0].device),
        rows,
        valid=None,
        batch_size=batch,
        epochs=EPOCHS + 2,
        training=TrainingOptions(callbacks=[lambda epoch: marks.append(synchronized())], **options),
        progress=False,
    )
    taken = [after - before for before, after in pairwise(marks[1:])]
    steps = len(rows[0]) // batch
    compiled = None if result.compiled is None else f"{result.compiled.summary}"
    return statistics.median(taken) / steps * 1e3, compiled


def hand_ms(hand: ByHand, step: Callable[[Tensor, Tensor], None]) -> float:
    """The same of a loop by hand."""
    taken = []
    for _ in range(EPOCHS + 1):
        start = synchronized()
        for places in torch.randperm(len(hand.x), device=hand.x.device).split(hand.batch):
            step(hand.x[places], hand.y[places])
        taken.append(synchronized() - start)
    return statistics.median(taken[1:]) / (len(hand.x) // hand.batch) * 1e3


def plain_step(hand: ByHand, x: Tensor, y: Tensor) -> None:
    """A step of a loop by hand."""
    hand.optimizer.zero_grad()
    hand.loss(x, y, 0.5).backward()
    hand.optimizer.step()


def graph_of(hand: ByHand) -> Callable[[Tensor, Tensor], None]:
    """The step of a loop by hand as a CUDA graph."""
    x, y = hand.x[: hand.batch].clone(), hand.y[: hand.batch].clone()
    for group in hand.optimizer.param_groups:
        group["capturable"] = True
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            plain_step(hand, x, y)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plain_step(hand, x, y)

    def step(rows: Tensor, labels: Tensor) -> None:
        x.copy_(rows)
        y.copy_(labels)
        graph.replay()

    return step


def steps_runs(small: bool) -> Iterator[dict[str, Any]]:
    for name in TIMED[: 1 if small else None]:
        for batch in (64,) if small else BATCHES:
            yield {"name": name, "batch": batch}


def timed_steps(run: dict[str, Any], device: str, small: bool) -> dict[str, Any]:
    """Milliseconds of a step in every way, and their ratios to the loop by hand."""
    batch, width = run["batch"], 16 if small else WIDTH
    rows = rows_on(device, batch * STEPS)
    hand = BY_HAND[run["name"]](width, *rows, batch)
    taken = {"by hand": hand_ms(hand, partial(plain_step, hand))}
    if device != "cpu":
        again = BY_HAND[run["name"]](width, *rows, batch)
        taken["by hand, CUDA graph"] = hand_ms(again, graph_of(again))
    steps = {}
    for way, compiled in RECORDED.items():
        # Compiling takes a minute a system, and rows of other numbers gain alike.
        if way == "compiled" and (small or (run["name"], batch) != ("LEX", BATCHES[0])):
            continue
        made = system(run["name"], width)
        taken[f"fit, {way}"], steps[way] = library_ms(made, rows, batch, compile=compiled)
    ratios = {way: ms / taken["by hand"] for way, ms in taken.items()}
    return {"milliseconds": taken, "ratios": ratios, "compiled": steps}


def bf16(device: str, small: bool) -> dict[str, Any]:
    """Steps with products in bf16 against those without, and what LEX selects on S1."""
    found: dict[str, Any] = {}
    batch, widths = (64, (16, 16)) if small else (BATCHES[1], (WIDTH, WIDTH))
    large = (16, 16) if small else (2_048, 2_048)
    rows = rows_on(device, batch * STEPS)
    for width in (widths, large):
        sizes = {"hidden": width, "predictor_hidden": width}
        made = lex(11, classes=2, penalty=0.02, imputer=GaussianImputer(), folds=1, **sizes)
        ms = [library_ms(made, rows, batch, precision=p)[0] for p in (None, "bf16-mixed")]
        found[f"ratio of steps, width {width[0]}"] = ms[1] / ms[0]
    train, test = (
        synthetic("S1", rows=500 if small else 10_000, seed=seed).to(device) for seed in (1, 2)
    )
    stated = {"hidden": (200, 200), "predictor_hidden": (200,) * 3, "imputer": GaussianImputer()}
    for precision in (None, "bf16-mixed"):
        result = fit(
            lex(11, classes=2, k=5, folds=1, **stated).to(device),
            (train.x, train.y),
            valid=0.1,
            weight_decay=1e-3,
            batch_size=500 if small else 1_000,
            epochs=2 if small else 150,
            replicates=3,
            training=TrainingOptions(precision=precision),
            progress=False,
        )
        models = [model.cpu() for model in result.models]
        judgements = [judged(model, test.to("cpu"), seed=0) for model in models]
        found[str(precision)] = {
            name: statistics.mean(one[name] for one in judgements)
            for name in ("tpr", "fdr", "log_likelihood", "accuracy")
        }
    return found


def explained(device: str, small: bool) -> dict[str, Any]:
    """Explained rows a second."""
    with seeded(0):
        program = lex(11, classes=2).program().eval()
    found: dict[str, Any] = {}
    for draws, rows in ((100, 20_000), (0, 200_000)):
        rows = 20 if small else rows
        for place in dict.fromkeys((device, "cpu")):
            x, program = rows_on(place, rows)[0], program.to(place)
            explain(program, x[:10], draws=draws)
            start = synchronized()
            explain(program, x, draws=draws)
            found[f"rows a second, draws={draws}, {place}"] = rows / (synchronized() - start)
    return found


def processes(device: str, small: bool) -> dict[str, Any]:
    """A fit in a group of one process against one without a group."""
    backend = "gloo" if device == "cpu" else "nccl"
    rows = rows_on(device, 64 if small else 4_000)
    options = {"valid": None, "epochs": 3, "batch_size": 32 if small else 500, "progress": False}
    sizes = {"hidden": (32,), "predictor_hidden": (32,)}
    made = lex(11, classes=2, penalty=0.02, imputer=GaussianImputer(), folds=1, **sizes).to(device)
    alone = fit(made, rows, training=TrainingOptions(distributed=False), **options)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        group = fit(made, rows, **options)
    finally:
        torch.distributed.destroy_process_group()
    pairs = zip(parameters_of(group), parameters_of(alone), strict=True)
    return {"backend": backend, "difference": max(difference(a, b) for a, b in pairs)}


def digits_table(options: argparse.Namespace) -> None:
    """The images' records, of 60,000 digits in batches of 1,000."""
    if not (FOLDER / "MNIST").is_dir():
        print(f"no digits: {FOLDER} has no MNIST; LEXPPL_DATA names the folder of the data sets")
        return
    # The record's `full` is of the paper's 500 epochs; what was taken in their place is beside it.
    of_images = argparse.Namespace(
        **{**vars(options), "methods": ["real_x", "lex"], "seeds": 1, "full": not options.small}
    )

    def task_of(seed: int) -> digits.Task:
        task = digits.task_of(seed, of_images)
        shorter = {"batch_size": 100 if options.small else 1_000, "learning_rate": digits.RATE}
        epochs = 1 if options.small else options.digits_epochs
        return replace(
            task,
            fit={
                **task.fit,
                **shorter,
                "epochs": epochs,
                "training": TrainingOptions(compile="graph"),
            },
            judge={**task.judge, **shorter, "epochs": epochs},
        )

    judge_images("gpu_digits", of_images, task_of, 1, "perceptrons")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--device", default="cuda", help="cuda, or cpu")
    parser.add_argument("--digits-epochs", type=int, default=30)
    options = options_of(parser, small={})
    device, small = options.device, options.small
    if device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {device}: torch {torch.__version__} sees no GPU; --device cpu runs")
    name = "cpu" if device == "cpu" else torch.cuda.get_device_name(device)
    records = Records("gpu", SAME, line, options)
    sections: dict[str, tuple[Iterator[dict[str, Any]], Callable[..., dict[str, Any]]]] = {
        "agree": (
            agree_runs(small),
            lambda run: agreement(run["name"], getattr(torch, run["dtype"]), device, small),
        ),
        "whole": (iter([{}]), lambda run: whole(device, small)),
        "steps": (steps_runs(small), lambda run: timed_steps(run, device, small)),
        "bf16": (iter([{}]), lambda run: bf16(device, small)),
        "explained": (iter([{}]), lambda run: explained(device, small)),
        "processes": (iter([{}]), lambda run: processes(device, small)),
    }
    with warnings.catch_warnings(action="ignore"):
        for section in options.only:
            if section == "digits":
                digits_table(options)
                continue
            runs, work = sections[section]
            for run in records.due({"section": section, "device": name, **r} for r in runs):
                with records.run(run) as record:
                    record |= work(run)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
