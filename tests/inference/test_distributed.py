"""Processes that share a fit: what they do together, against what one does with the whole batch."""

import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import torch.distributed
from pyro.infer import NUTS, Trace_ELBO
from pyro.nn import PyroModule
from scipy.stats import f
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from lexppl.inference import (
    REBAR,
    Enumerate,
    LossTerm,
    NestedIWAE,
    Objective,
    ReplicateData,
    ScoreFunction,
    TrainingOptions,
    TunedControl,
    fit,
)
from lexppl.inference.batches import TensorRows
from lexppl.inference.contexts import keep_parameters_local, seeded
from lexppl.inference.training.distributed import Dealt, name_of_round, processes_of
from lexppl.inference.training.first_look import nodes_of, refuse_unshared
from lexppl.inference.training.step import TrainingStep
from lexppl.models import LEX, MLP, BernoulliSelector, ConstantImputer, SizePenalty
from tests import small_models
from tests.processes import server
from tests.refusals import refused
from tests.small_models import Point, WithPrior

GENERATOR = torch.Generator().manual_seed(0)
ROWS = 47
X = torch.randn(ROWS, 3, generator=GENERATOR).double()
Y = (X[:, 0] + 0.5 * torch.randn(ROWS, generator=GENERATOR) > 0).long()
FEW = X[-9:], Y[-9:]
OTHERS = [(X.flip(0) + 0.1, Y.flip(0)), (X, Y)]
WAIT = 240
"""Seconds after which processes that have not answered hang."""
FAILURE = 1e-6
"""Probability that a right program fails one of the tests of chance here."""
DRAWN, REPLICATES = 800, 8
"""Estimates of a gradient, and how many are drawn at once."""
STILL = 1e-9
"""A rate at which nothing moves that a gradient could tell."""


def joined(rank, count, address, work, pipe):
    """In a process of its own: work within a group."""
    # Whoever starts the tests in the background has the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", f"file://{address}", rank=rank, world_size=count, timeout=timedelta(seconds=120)
    )
    pipe.send(work(rank))
    pipe.close()


def together(folder, work, count=2):
    """What each of several processes of a group makes of its number; None of one that died."""
    context = server()
    pipes, processes = [], []
    for rank in range(count):
        here, there = context.Pipe(duplex=False)
        args = (rank, count, folder / "group", work, there)
        processes.append(context.Process(target=joined, args=args, daemon=True))
        processes[-1].start()
        there.close()
        pipes.append(here)
    try:
        found = []
        for pipe in pipes:
            assert pipe.poll(WAIT), "the processes hang"
            try:
                found.append(pipe.recv())
            except EOFError:
                found.append(None)
        return found
    finally:
        for process in processes:
            process.kill()
            process.join()


def explainer(seed=0, batch_norm=False, program=LEX, cost=0.1):
    selector = BernoulliSelector(MLP(3, 3, (4,), seed=seed, batch_norm=batch_norm))
    options = {"seed": seed, "program": program, "penalties": [SizePenalty(cost)]}
    return small_models.explainer(lambda _: selector, ConstantImputer(0.2), **options).double()


EXACT = partial(NestedIWAE, math.inf, estimator=Enumerate())
CASES = {
    "fifty steps": {"epochs": 50, "batch_size": ROWS, "valid": None},
    "an empty share": {"epochs": 5, "batch_size": 9, "valid": (X[:15], Y[:15])},
    "fractions": {
        "epochs": 3,
        "batch_size": 20,
        "training": TrainingOptions(clip_norm=0.01, patience=1),
    },
    "weighted replicates": {
        "epochs": 4,
        "batch_size": 10,
        "replicates": 3,
        "row_weights": "dirichlet",
        "training": TrainingOptions(clip_norm=0.1),
    },
    "rows by replicate": {"epochs": 4, "train": ReplicateData(OTHERS), "batch_size": 10},
    "folds": {"epochs": 4, "batch_size": 11, "folds": 3, "valid": 0.3},
    "sample weights": {"epochs": 4, "batch_size": 11, "sample_weight": np.arange(ROWS) % 4},
    "a global latent": {"epochs": 4, "batch_size": 10, "model": WithPrior, "guide": Point},
}
"""Fits without draws."""


def fitted(model=explainer, train=(X, Y), objective=EXACT, guide=None, **settings):
    """All that a fit has come to, as numbers."""
    guide = None if guide is None else guide()
    with seeded(0):
        objective = objective()
    result = fit(model(), train, objective=objective, guide=guide, progress=False, **settings)
    held = [m.state_dict().values() for m in result.modules]
    state = torch.stack([torch.cat([v.reshape(-1).double() for v in values]) for values in held])
    found = {"train": result.history.train, "valid": result.history.valid}
    return {**found, "best": result.best_epoch, "state": state.numpy()}


def estimates():
    """Gradients by score at one point, `(DRAWN, P)`, each with draws of its own."""
    states, optimizer = [], partial(torch.optim.SGD, lr=STILL)
    options = {"objective": NestedIWAE(1, estimator=ScoreFunction()), "optimizer": optimizer}
    options["training"] = TrainingOptions(
        callbacks=[lambda epoch: states.append(epoch.snapshot()) and None]
    )
    epochs = DRAWN // REPLICATES + 1
    small_models.quick([explainer(seed=3)] * REPLICATES, FEW, epochs=epochs, **options)
    flat = torch.stack([torch.cat([v.flatten(1) for v in one.values()], 1) for one in states])
    return (-flat.diff(dim=0) / STILL).flatten(0, 1).numpy()


ELASTIC = {"epochs": 6, "batch_size": 5, "replicates": 2}
"""A fit that is killed on its way, and one that is not."""

KILLED = """
import os, signal, sys
import numpy as np
from tests.inference import test_distributed as test
from lexppl.inference import NestedIWAE
from lexppl.inference.training.checkpoint import Checkpoints
from lexppl.models import LEX


class Killed(LEX):
    calls = 0

    def forward(self, *args):
        Killed.calls += self.training
        first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if first and os.environ["RANK"] == "1" and Killed.calls == 34:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(*args)


folder = sys.argv[1]
result = test.fitted(
    test.partial(test.explainer, program=Killed),
    objective=test.partial(NestedIWAE, 4),
    checkpoint=Checkpoints(folder + "/states", every_minutes=0),
    training=test.TrainingOptions(distributed=True),
    **test.ELASTIC,
)
restarts, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
np.savez(f"{folder}/{rank}.npz", restarts=int(restarts), calls=Killed.calls, **result)
"""


class OwnLEX(LEX):
    """A program that is not the library's, whose statements are looked at before the first step."""


class Failing(LEX):
    """A program that one process cannot run after a few calls."""

    calls = 0
    last = None
    fails_in = None
    mode = True

    def forward(self, *args):
        type(self).calls += self.training == self.mode
        if self.calls == self.last and self.fails_in == torch.distributed.get_rank():
            raise LookupError("a page is missing")
        return super().forward(*args)


class Breaking(LEX):
    """A program whose loss is NaN in one step of one process."""

    calls = 0

    def forward(self, x, *args):
        type(self).calls += self.training
        if self.calls == 41 and torch.distributed.get_rank() == 1:
            x = x * torch.nan
        return super().forward(x, *args)


def failing(rank, mode, last):
    Failing.calls, Failing.last, Failing.fails_in, Failing.mode = 0, last, rank, mode
    return fitted(model=partial(explainer, program=Failing), epochs=4, batch_size=10)


def ending(rank, which, at, answer):
    """A fit in which one process's callback does something after an epoch."""

    def call(epoch):
        return answer() if rank == which and epoch.number == at else None

    return fitted(epochs=8, batch_size=10, training=TrainingOptions(callbacks=[call]))


def broken():
    raise OSError("no space left")


def interrupt():
    signal.raise_signal(signal.SIGINT)


def said(work):
    """What a fit comes to, or what it raises."""
    try:
        return work()
    except (Exception, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"


def own_loop(rank, count):
    """The gradient of a loop of one's own, by DistributedDataParallel where there are several."""
    model = explainer(seed=5)
    keep_parameters_local(model)
    loss = NestedIWAE(math.inf, estimator=Enumerate())(model, None)
    x, y = X[rank:46:count], Y[rank:46:count]
    if count > 1:
        loss = DistributedDataParallel(loss)
    with pyro.settings.context(module_local_params=True):
        (loss(x, y) / len(x)).backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy()


def everything(rank):
    """All that the tests below ask of two processes, one after another in one group."""
    noisy = X + 0.1 * rank
    rebar = partial(NestedIWAE, 2, estimator=REBAR(control=TunedControl(0.5, 1.0).double()))
    normed = partial(explainer, batch_norm=True)
    loader = DataLoader(TensorDataset(X, Y), 9)
    both, first = torch.distributed.new_group([0, 1]), torch.distributed.new_group([0])
    of_both = replace(CASES["fractions"]["training"], distributed=both)
    work = {name: partial(fitted, **case) for name, case in CASES.items()} | {
        "batch norm": partial(fitted, normed, epochs=3, batch_size=9),
        "rebar": partial(fitted, objective=rebar, epochs=3, batch_size=10),
        "other weights": partial(fitted, partial(explainer, seed=rank), epochs=2),
        "gradients": estimates,
        "alone": partial(
            fitted, train=(noisy, Y), epochs=2, training=TrainingOptions(distributed=False)
        ),
        "other rows": partial(fitted, train=(noisy, Y), epochs=2),
        "other seed": partial(fitted, seed=rank, epochs=2),
        "other penalty": partial(fitted, partial(explainer, cost=0.1 + rank), epochs=2),
        "not killed": partial(
            fitted, partial(explainer, program=OwnLEX), objective=partial(NestedIWAE, 4), **ELASTIC
        ),
        "compiled": partial(
            fitted,
            training=TrainingOptions(compile="graph", clip_norm=0.01),
            epochs=4,
            batch_size=20,
        ),
        "no rows": partial(fitted, train=(X / (1 - rank), Y), epochs=2),
        "a loader": partial(fitted, train=loader, valid=None, epochs=1),
        "failing to look": partial(failing, 1, True, 2),
        "failing to learn": partial(failing, 1, True, 20),
        "failing to judge": partial(failing, 0, False, 2),
        "failing callback": partial(ending, rank, 1, 2, broken),
        "early stop": partial(ending, rank, 1, 2, lambda: True),
        "interrupted": partial(ending, rank, 0, 3, interrupt),
        "a group": partial(fitted, **{**CASES["fractions"], "training": of_both}),
        "another group": partial(fitted, epochs=1, training=TrainingOptions(distributed=first)),
        "sampled": partial(fit, WithPrior(), (X, Y), inference=NUTS),
        "not finite": partial(
            fitted, partial(explainer, program=Breaking), epochs=6, batch_size=10
        ),
        "own loop": partial(own_loop, rank, 2),
    }
    return {name: said(one) for name, one in work.items()}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return together(tmp_path_factory.mktemp("pair"), everything)


@pytest.fixture
def same_batches(monkeypatch):
    """Let the draws of a step leave the order of the rows as it is, as they do where processes have
    draws of their own: one process then has the same batches."""
    run = TrainingStep.run

    def apart(self, *args):
        with torch.random.fork_rng(devices=[]):
            return run(self, *args)

    monkeypatch.setattr(TrainingStep, "run", apart)


def assert_same(found, expected, **tolerances):
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, err_msg=key, **tolerances)


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("name", CASES)
def test_two_processes_do_what_one_does_with_the_whole_batch(pair, same_batches, name):
    one = fitted(**CASES[name])
    assert_same(pair[0][name], one, rtol=1e-9, atol=1e-11)


def test_compiled_steps_are_shared(pair):
    whole = fitted(epochs=1, batch_size=20, training=TrainingOptions(clip_norm=0.01))
    shared = pair[0]["compiled"]["train"][:1]
    np.testing.assert_allclose(shared, whole["train"], rtol=1e-9, atol=1e-11)


MORE = ("batch norm", "rebar", "interrupted", "not killed", "compiled", "not finite")


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_all_processes_end_alike_to_the_bit(pair, name):
    """In "not finite" a step is not in one process, and moves none."""
    first, second = (found[name] for found in pair)
    assert isinstance(first, dict), first
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key], err_msg=key)
    assert np.isfinite(first["state"]).all()
    of_epochs = "valid" if name == "not finite" else "train"
    assert np.isfinite(first[of_epochs]).all()


def test_drawn_gradients_are_those_of_the_whole_batch(pair, monkeypatch):
    model = explainer(seed=3)
    keep_parameters_local(model)
    exact = NestedIWAE(1, estimator=Enumerate()).differentiable_loss(model, None, *FEW)
    found = torch.autograd.grad(exact / len(FEW[0]), list(model.parameters()))
    gradient = torch.cat([g.reshape(-1) for g in found]).numpy()
    drawn = pair[0]["gradients"]
    assert len(drawn) == DRAWN
    np.testing.assert_array_equal(drawn, pair[1]["gradients"])

    def distance(expected):
        """Of the means, in standard errors, over the directions that are drawn."""
        values, vectors = np.linalg.eigh(np.cov(drawn.T))
        kept = values > 1e-9 * values[-1]
        along = (drawn.mean(0) - expected) @ vectors[:, kept]
        squared = DRAWN * (along**2 / values[kept]).sum()
        size = int(kept.sum())
        return f.sf(squared * (DRAWN - size) / (size * (DRAWN - 1)), size, DRAWN - size)

    assert distance(gradient) > FAILURE
    assert distance(1.3 * gradient) < FAILURE


def test_a_fit_that_draws_is_another_draw_than_that_of_one_process_and_the_page_says_so(pair):
    """Only what draws nothing is the same to rounding."""
    page = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
    section = " ".join(page.partition("## Several processes")[2].partition("## ")[0].split())
    assert "such a fit is another draw of the same estimator" in section
    assert "together they do what one does" not in section
    values = estimates()[0], pair[0]["gradients"][0]
    assert np.abs(values[0] - values[1]).max() > 1e-3


def test_processes_draw_apart(pair):
    """As many draws as one process has: the gradient's variance is that of one process too."""
    one = estimates()
    spread = [values.var(0, ddof=1).sum() for values in (one, pair[0]["gradients"])]
    assert 0.7 < spread[1] / spread[0] < 1.4


def test_processes_by_themselves_have_fits_of_their_own(pair):
    first, second = (found["alone"] for found in pair)
    expected = fitted(epochs=2)
    np.testing.assert_array_equal(first["train"], expected["train"])
    assert (first["train"] != second["train"]).any()


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("other rows", "in train.x, valid.x: "),
        ("other seed", "in seed: "),
        ("other penalty", "penalties.0.weight: "),
        ("other weights", "selector"),
    ],
)
def test_processes_that_are_given_different_things_are_refused(pair, name, differs):
    for found in pair:
        assert found[name].startswith("ValueError: processes that fit together are each given")
        assert differs in found[name] and "distributed=False" in found[name]


@pytest.mark.parametrize(
    ("name", "which", "error"),
    [
        ("no rows", 1, "ValueError: x of train must be finite"),
        ("failing to look", 1, "LookupError: a page is missing"),
        ("failing to learn", 1, "LookupError: a page is missing"),
        ("failing to judge", 0, "LookupError: a page is missing"),
        ("failing callback", 1, "OSError: no space left"),
    ],
)
def test_a_failure_of_one_process_is_all_of_theirs(pair, name, which, error):
    own, others = pair[which][name], pair[1 - which][name]
    assert own.startswith(error)
    early = f"ProcessError: process {which} of 2 has failed: {error}"
    assert others.startswith((early, "ProcessError: another of the 2 processes that share the fit"))


def test_a_group_is_shared_among_its_processes(pair):
    first, second = (found["another group"] for found in pair)
    np.testing.assert_array_equal(first["train"], fitted(epochs=1)["train"])
    assert second.startswith("TypeError: distributed must be None, True, False or")
    for key, value in pair[1]["fractions"].items():
        np.testing.assert_array_equal(pair[0]["a group"][key], value, err_msg=key)


def test_sampling_is_not_shared_and_a_loader_is_refused(pair):
    for found in pair:
        assert "inference= samples in one process" in found["sampled"]
        assert "train comes in batches of its own" in found["a loader"]


@pytest.mark.parametrize(("name", "epochs"), [("early stop", 3), ("interrupted", 4)])
def test_processes_stop_at_the_same_epoch(pair, name, epochs):
    assert [len(found[name]["train"]) for found in pair] == [epochs, epochs]


def test_a_loop_of_ones_own_takes_torchs_wrapper(pair):
    one = own_loop(0, 1)
    for found in pair:
        np.testing.assert_allclose(found["own loop"], one, rtol=1e-9, atol=1e-12)


def killed(rank):
    """The first process, whose other is killed within a step."""
    if rank == 1:
        callback = [lambda epoch: os.kill(os.getpid(), signal.SIGKILL)]
        fitted(epochs=3, training=TrainingOptions(callbacks=callback))
    return said(partial(fitted, epochs=3))


def test_a_process_that_is_killed_leaves_none_waiting(tmp_path):
    first, second = together(tmp_path, killed)
    assert second is None
    assert first.startswith("ProcessError: process 0 of 2 waited for the others")


@pytest.mark.complete
def test_a_fit_goes_on_where_a_killed_process_has_left_it(pair, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.2"]
    environment = {**os.environ, "PYTHONPATH": str(root), "GLOO_SOCKET_IFNAME": "lo"}
    how = {"capture_output": True, "text": True, "timeout": WAIT}
    how["env"] = {**environment, "OMP_NUM_THREADS": "1"}
    run = subprocess.run([*command, str(script), str(tmp_path)], check=False, **how)
    assert run.returncode == 0, run.stderr[-3000:]
    for rank in range(2):
        found = np.load(tmp_path / f"{rank}.npz")
        # Fewer than the six epochs have: what was done before is not done again.
        assert found["restarts"] == 1 and found["calls"] < 6 * 8
        for key, value in pair[rank]["not killed"].items():
            np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_processes_that_are_started_again_find_one_another_among_what_others_left():
    store, rounds = torch.distributed.HashStore(), []
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        # One that ends before it has found the others leaves a word too.
        store.set("lexppl/1", "left")
        with ThreadPoolExecutor(3) as pool:
            began = [pool.submit(name_of_round, store, order[0], 3)]
            time.sleep(0.12)
            began += [pool.submit(name_of_round, store, rank, 3) for rank in order[1:]]
            names = {one.result(timeout=60) for one in began}
        assert len(names) == 1
        rounds += names
    assert len(set(rounds)) == 3


def in_folds(rows, folds):
    """Rows in folds that are not divided at random."""
    if folds == 1:
        return rows
    sizes = tuple(len(block) for block in rows.columns[0].tensor_split(folds))
    return TensorRows(rows.columns, sizes=sizes)


@pytest.mark.parametrize("folds", [1, 3])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 12, 47])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_each_row_is_dealt_out_once_and_in_its_fold(folds, rows, count):
    columns = (torch.arange(rows), torch.arange(rows).tensor_split(folds))
    fold = torch.cat([torch.full((len(b),), i) for i, b in enumerate(columns[1])])
    batch, weights = (columns[0], fold), torch.arange(rows).expand(2, rows)
    shares = [
        Dealt(in_folds(TensorRows(batch), folds), r, count).of(batch, weights) for r in range(count)
    ]
    for (places, _), own_weights, size in shares:
        assert torch.equal(own_weights[1], places) and size == len(places)
        assert size != 1 or rows < 2 * count or folds > 1
    for (_, found), _, size in shares:
        expected = torch.arange(size).tensor_split(folds)
        parted = torch.cat([torch.full((len(b),), i) for i, b in enumerate(expected)])
        assert torch.equal(found, parted)
    every = torch.cat([share[0] for share, _, _ in shares])
    assert torch.equal(every.sort().values, columns[0])
    sizes = [size for _, _, size in shares if size]
    assert max(sizes) - min(sizes) <= folds


def test_rows_of_replicates_are_dealt_out_by_row():
    rows = TensorRows((torch.arange(14).reshape(2, 7),), by_replicate=True)
    shares = [Dealt(rows, r, 2).of(rows.columns, None) for r in range(2)]
    assert [size for _, _, size in shares] == [4, 3]
    assert torch.equal(torch.cat([share[0] for share, _, _ in shares], 1), rows.columns[0])


class Whole(PyroModule):
    """A program that observes all rows at once, in no plate."""

    def forward(self, x, y=None):
        with pyro.plate("data", len(x)):
            pyro.sample("z", dist.Normal(0.0, 1.0), obs=x[:, 0])
        pyro.sample("y", dist.Normal(x[:, 1], 1.0).to_event(1), obs=x[:, 2])


class Unscaled(Objective):
    def differentiable_loss(self, model, guide, *args, **kwargs):
        return args[0].sum()


@pytest.mark.parametrize(
    ("model", "objective", "plate", "error"),
    [
        (Whole(), Trace_ELBO(), "data", "site 'y' has an entry for each row"),
        (Whole(), Trace_ELBO(), None, "Whole has none"),
        (Whole(), Unscaled(), "data", "Unscaled does not say"),
    ],
)
def test_what_has_no_rows_to_share_is_refused(model, objective, plate, error):
    term = LossTerm(model, objective)
    batch = (X.float(),)
    refused(error, refuse_unshared, term, (nodes_of(model, batch), {}), plate, batch)


def test_a_global_latent_as_wide_as_a_batch_has_rows_is_no_row():
    model, batch = WithPrior(), (X[:3], Y[:3])
    keep_parameters_local(model)
    refuse_unshared(LossTerm(model, EXACT()), (nodes_of(model, batch), {}), "data", batch)


def test_processes_that_torchrun_has_started_are_not_ignored(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}.items():
        monkeypatch.setenv(name, value)
    refused("one of 2 processes that torchrun has started", fitted, epochs=1)
    assert processes_of(False).count == 1


def test_sharing_by_oneself_is_refused():
    refused("was started alone", fitted, epochs=1, training=TrainingOptions(distributed=True))
    with pytest.raises(TypeError, match="distributed must be None, True, False or"):
        fitted(epochs=1, training=TrainingOptions(distributed="gloo"))
