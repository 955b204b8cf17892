"""What speed is measured against does the same as the library, and its figures make its tables."""

import importlib
import warnings

import pytest
import torch

from lexppl.data import synthetic
from lexppl.inference import fit

pytestmark = pytest.mark.usefixtures("benchmarks")
ROWS, COPIES, STEPS, WIDTH = 6, 300, 40, 5


class Recorded(torch.optim.SGD):
    """Moves nothing, and keeps the gradients."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.0)
        self.found = []
        Recorded.last = self

    def step(self, closure=None):
        held = [p for group in self.param_groups for p in group["params"]]
        self.found.append({id(p): p.grad.clone() for p in held})


def networks_of(name, terms):
    """The library's networks, in the order of the loop's."""
    first = terms[0].model
    found = [first.selector.network, first.predictor.network]
    return [*found, terms[1].model.predictor.network] if name == "INVASE" else found


def networks_by_hand(name, hand):
    if name == "INVASE":
        return [hand.selector, hand.critic, hand.baseline]
    return [hand.selector, hand.predictor]


def largest_z(ours, theirs):
    """Of the difference of two means over steps, by coordinate."""
    ours, theirs = torch.stack(ours).double(), torch.stack(theirs).double()
    error = ((ours.var(0) + theirs.var(0)) / len(ours)).sqrt()
    # Rounding moves what no draw does: a baseline's gradient, a bias before batch norm.
    error = error + 1e-4 * ours.abs().max()
    return float(((ours.mean(0) - theirs.mean(0)) / error).abs().max())


@pytest.mark.parametrize("name", ["LEX", "L2X", "INVASE", "REAL-X"])
def test_a_loop_by_hand_has_the_librarys_expected_gradient(name):
    by_hand = importlib.import_module("speed_by_hand")
    data = synthetic("S3", rows=ROWS, seed=0)
    x, y = data.x.repeat(COPIES, 1), data.y.repeat(COPIES)
    with warnings.catch_warnings(action="ignore"):
        result = fit(
            by_hand.system(name, WIDTH),
            (x, y),
            valid=None,
            epochs=STEPS,
            batch_size=len(x),
            optimizer=Recorded,
            progress=False,
        )
    terms = result.modules[0].stages[0].terms
    networks = networks_of(name, terms)
    places = [id(p) for network in networks for p in network.parameters()]
    ours = [torch.cat([g[i].flatten() for i in places]) for g in Recorded.last.found]
    hand = by_hand.BY_HAND[name](WIDTH, x, y, len(x))
    theirs = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for own, network in zip(networks_by_hand(name, hand), networks, strict=True):
            own.load_state_dict(network.state_dict())
        for step in range(STEPS):
            hand.optimizer.zero_grad()
            hand.loss(x, y, step / STEPS).backward()
            parts = networks_by_hand(name, hand)
            found = [p.grad.flatten() for part in parts for p in part.parameters()]
            theirs.append(torch.cat(found))
    assert largest_z(ours, theirs) < 5.0
    # A loop that weighed the selector otherwise would be seen.
    first = sum(p.numel() for p in networks[0].parameters())
    scale = torch.ones(len(theirs[0]))
    scale[:first] = 1.5
    assert largest_z(ours, [scale * one for one in theirs]) > 5.0


def test_replicates_by_hand_are_as_many_fits():
    by_hand = importlib.import_module("speed_by_hand")
    data = synthetic("S3", rows=64, seed=0)
    three = by_hand.replicates_by_hand(3)(8, data.x, data.y, 32)
    before = [p.clone() for layer in three.selector for p in layer]
    assert three.epoch(0.5) > 0.0
    after = [p for layer in three.selector for p in layer]
    assert all(p.shape[0] == 3 and (p != q).any() for p, q in zip(after, before, strict=True))


@pytest.mark.complete
def test_speed_is_recorded_by_section_and_printed_in_its_tables(benchmarks):
    for only, name in (("steps replicates", "LEX"), ("explained", "lime"), ("growth", "L")):
        records = benchmarks.run("speed", "--small", "--only", *only.split(), "--names", name)
    sections = [r["section"] for r in records]
    assert sections == ["steps", "replicates", "explained", "growth", "growth"]
    step, several, theirs, *_ = records
    assert step["ratio"] > 0 and several["replicates"] == 2
    assert theirs["rows_a_second"] > 0 and theirs["peak"] > 100
    tables = importlib.import_module("speed_tables")
    steps = tables.steps_table(records)
    assert f"| LEX | 64 | 64 | 1 | {step['by_hand_ms']:.2f} | {step['library_ms']:.2f} |" in steps
    assert "| LEX | 64 | 64 | 2 |" in steps
    assert "| lime | 2 |" in tables.explained_table(records)
    assert "| L | 2: " in tables.growth_table(records)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_a_slope_is_the_power(power):
    tables = importlib.import_module("speed_tables")
    sizes = (16, 64, 256, 1024)
    records = [{"size": size, "milliseconds": 3.0 * size**power} for size in sizes]
    assert tables.slope(records) == pytest.approx(power)
