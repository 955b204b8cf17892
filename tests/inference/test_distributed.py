"""Processes that share a fit: what they do together, against what one does with the whole batch."""

import multiprocessing
import os
import time
import traceback
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from lexppl.inference import Enumerate, NestedIWAE, fit
from lexppl.inference.training.step import TrainingStep
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    Predictor,
    SizePenalty,
)

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(47, 3, generator=GENERATOR).double()
Y = (X[:, 0] + 0.5 * torch.randn(47, generator=GENERATOR) > 0).long()
WAIT = 120
"""Seconds after which processes that have not answered hang."""


def joined(rank, count, address, work, args, pipe):
    """In a process of its own: work within a group, and what it gives or raises."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{address}", rank=rank, world_size=count, timeout=timedelta(seconds=60)
    )
    try:
        pipe.send((work(rank, *args), None))
    except BaseException as error:
        traceback.print_exc()
        pipe.send((None, (type(error).__name__, str(error))))
    pipe.close()


@pytest.fixture
def together(tmp_path):
    """Run something in several processes of a group; what each gives, and what each raises."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])

    def run(work, *args, count=2):
        began, pairs, processes = time.monotonic(), [], []
        address = tmp_path / f"group_{time.monotonic_ns()}"
        for rank in range(count):
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=joined, args=(rank, count, address, work, args, there), daemon=True
            )
            process.start()
            there.close()
            pairs.append(here)
            processes.append(process)
        try:
            found = []
            for pipe in pairs:
                if not pipe.poll(max(1.0, WAIT - (time.monotonic() - began))):
                    pytest.fail("the processes hang")
                try:
                    found.append(pipe.recv())
                except EOFError:
                    found.append((None, ("killed", "")))
            return found
        finally:
            for process in processes:
                process.kill()
                process.join()

    return run


def explainer(seed=0):
    return LEX(
        BernoulliSelector(MLP(3, 3, (4,), seed=seed)),
        ConstantImputer(0.2),
        Predictor(MLP(3, 2, (4,), seed=seed + 1), CategoricalLikelihood()),
        [SizePenalty(0.1)],
    ).double()


def seen(result):
    """All that a fit has learned, as numbers."""
    history = np.stack([result.history.train, result.history.valid])
    weights = [
        torch.cat([p.detach().reshape(-1).double() for p in model.parameters()]).numpy()
        for model in result.models
    ]
    return {"history": history, "weights": np.stack(weights), "best": result.best_epoch}


EXACT = {"objective": NestedIWAE(masks=float("inf"), estimator=Enumerate())}
CASES = {
    "fifty steps": {"epochs": 50, "batch_size": 47, "valid": None},
    "uneven batches": {"epochs": 5, "batch_size": 9, "valid": (X[:15], Y[:15])},
    "replicates": {"epochs": 4, "batch_size": 10, "replicates": 3, "row_weights": "dirichlet"},
}


def fitted(rank, name):
    return seen(fit(explainer(), (X, Y), **EXACT, **CASES[name], progress=False))


@pytest.fixture
def same_batches(monkeypatch):
    """Let the draws of a step leave the order of the rows as it is, as they do where processes have
    draws of their own: one process then has the same batches."""
    run = TrainingStep.run

    def apart(self, *args):
        with torch.random.fork_rng(devices=[]):
            return run(self, *args)

    monkeypatch.setattr(TrainingStep, "run", apart)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_do_what_one_does(together, same_batches, name):
    one = fitted(0, name)
    for both, error in together(fitted, name):
        assert error is None
        for key, value in one.items():
            np.testing.assert_allclose(both[key], value, rtol=1e-9, atol=1e-12, err_msg=key)
