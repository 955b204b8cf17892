"""Programs composed at random of plates, scales, masks, factors and latents."""

from contextlib import ExitStack
from dataclasses import dataclass, field

import pyro
import pyro.distributions as dist
import torch
from hypothesis import strategies as st

from lexppl.distributions import KSubset
from lexppl.effects import imputation_particles, mask_particles, penalty
from tests.programs.zoo import Program

X = torch.tensor([[0.9, -0.6], [-0.4, 1.2], [1.5, 0.3]]).double()
Y = torch.tensor([1.0, 0.0, 1.0]).double()
ROW_WEIGHTS = torch.tensor([0.5, 2.0, 1.4]).double()
TIMES = torch.tensor([0.2, -0.6]).double().reshape(2, 1, 1, 1)
GROUP_OF_ROW = torch.tensor([0, 1, 1])
PENALTY = 0.7
VALUES = {
    **{"a": [0.4, -0.7], "b": [0.3], "group": [0.2, -0.5], "fill": [0.35]},
    **{"w": [1.3, -0.9], "wb": [0.8], "q_a": [-0.2, 0.5], "q_b": [0.6], "q_group": [0.1, 0.3]},
}


@dataclass(frozen=True)
class Recipe:
    """What one program is made of.

    Args:
        rows: B.
        rows_inside: whether `mask_particles()` is entered before the rows' plate.
        distribution: of the first mask.
        guided: which of the masks a guide draws.
        second: whether a second mask depends on the first.
        groups: whether rows share masks of two groups, in a plate of its own at −1.
        time: no repeated measures, or a plate or a loop inside or outside the mask plate.
        fill: no imputation, or hidden entries drawn from a fixed or a learned distribution.
        scale: what is scaled: all of a row by a number or by row, or the response alone.
        unseen: whether the first row is masked, at the response alone or in all.
        factor: none, one by row or one of the whole batch.
        cost: none, a penalty by draw, or one on the distribution outside the mask plate.
        second_response: whether each row has another response.
        masks, samples, imputations: L, S and K.
        entropy: weight of the entropy bonus.
    """

    rows: int = 2
    rows_inside: bool = False
    distribution: str = "bernoulli"
    guided: frozenset = frozenset()
    second: bool = False
    groups: bool = False
    time: str = "none"
    fill: str = "none"
    scale: str = "row weights"
    unseen: str = "none"
    factor: str = "none"
    cost: str = "none"
    second_response: bool = False
    masks: int = 2
    samples: int = 1
    imputations: int = 1
    entropy: float = 0.0
    _plates: dict = field(default_factory=dict, compare=False, repr=False)

    def program(self) -> Program:
        """With its particles and factors."""
        particles = {name: getattr(self, name) for name in ("masks", "samples", "imputations")}
        guide = self.guide if self.guided else None
        factors = {"entropy": self.entropy, "penalty": PENALTY, "values": VALUES}
        return Program(self.model, guide, **particles, **factors)

    # The statements

    def _row_scale(self):
        if self.scale == "number":
            return pyro.poutine.scale(scale=2.5)
        if self.scale == "row weights":
            return pyro.poutine.scale(scale=ROW_WEIGHTS[: self.rows])
        return pyro.poutine.scale(scale=1.0)

    def _response_scale(self):
        if self.scale == "response":
            return pyro.poutine.scale(scale=ROW_WEIGHTS[: self.rows])
        return pyro.poutine.scale(scale=1.0)

    def _seen(self):
        seen = torch.ones(self.rows, dtype=torch.bool)
        seen[0] = False
        return seen

    def _block(self, stack):
        """The plates that a row's statements stand in."""
        stack.enter_context(self._row_scale())
        if self.unseen == "row":
            stack.enter_context(pyro.poutine.mask(mask=self._seen()))
        data = self._data
        plates = (
            (mask_particles, lambda: data) if self.rows_inside else (lambda: data, mask_particles)
        )
        for plate in plates:
            stack.enter_context(plate())

    def _first(self, logits):
        if self.distribution == "k-subset":
            return KSubset(logits * (1 + 0 * X[: self.rows]), 1)
        if self.distribution == "categorical":
            return dist.Categorical(logits=logits * X[: self.rows])
        if self.distribution == "two entries":
            return dist.Bernoulli(logits=logits * (1 + X[: self.rows])).to_event(1)
        return dist.Bernoulli(logits=(logits * X[: self.rows]).sum(-1, keepdim=True)).to_event(1)

    def _as_number(self, mask):
        if self.distribution == "categorical":
            return 0.7 * mask.double()
        weights = torch.tensor([1.0, -0.6]).double()
        return (mask * weights[: mask.shape[-1]]).sum(-1)

    def _second(self, logits, first):
        return dist.Bernoulli(logits=(logits + 1.2 * first).unsqueeze(-1)).to_event(1)

    def _group_masks(self, logits, values):
        with pyro.plate("groups", 2, dim=-1), mask_particles():
            return pyro.sample("group", dist.Bernoulli(logits=logits.unsqueeze(-1)).to_event(1))

    @property
    def _data(self):
        """One plate a run: Pyro lets a plate be made once."""
        return self._plates["data"]

    def guide(self, p):
        self._plates["data"] = pyro.plate("data", self.rows, dim=-1)
        if "group" in self.guided and self.groups:
            self._group_masks(p["q_group"], p)
        with ExitStack() as stack:
            self._block(stack)
            first = None
            if "a" in self.guided:
                first = self._as_number(pyro.sample("a", self._first(p["q_a"])))
            if "b" in self.guided and self.second and first is not None:
                pyro.sample("b", self._second(p["q_b"], first))

    def model(self, p):
        self._plates["data"] = pyro.plate("data", self.rows, dim=-1)
        shared = 0.0
        if self.groups:
            group = self._group_masks(p["group"], p)
            shared = 0.9 * group[..., GROUP_OF_ROW[: self.rows], 0]
        if self.cost == "distribution":
            with self._row_scale(), self._data:
                penalty("cost", 0.3 * (p["a"] * X[: self.rows]).sum(-1).sigmoid())
        with ExitStack() as stack:
            self._block(stack)
            first = self._as_number(pyro.sample("a", self._first(p["a"])))
            effect = p["w"][0] * first + shared
            if self.second:
                b = pyro.sample("b", self._second(p["b"], first))[..., 0]
                effect = effect + p["wb"][0] * b * (1.0 + first)
            if self.cost == "draw":
                penalty("cost", 0.4 * (effect - 0.3) ** 2)
            if self.factor == "row":
                pyro.factor("by_row", -0.3 * (effect - X[: self.rows, 0]) ** 2)
            if self.time == "inner plate":
                with pyro.plate("time", 2, dim=-4):
                    self._respond(p, effect, TIMES)
            elif self.time == "inner loop":
                for t in pyro.plate("time", 2):
                    self._respond(p, effect, 0.5 * t, f"_{t}")
            elif self.time == "none":
                self._respond(p, effect, 0.0)
        if self.time == "outer plate":
            with pyro.plate("time", 2, dim=-4), ExitStack() as stack:
                self._block(stack)
                self._respond(p, effect, TIMES)
        elif self.time == "outer loop":
            for t in pyro.plate("time", 2):
                with ExitStack() as stack:
                    self._block(stack)
                    self._respond(p, effect, 0.5 * t, f"_{t}")
        if self.factor == "batch":
            with mask_particles():
                total = effect * ROW_WEIGHTS[: self.rows]
                pyro.factor("batch", -0.2 * (total.sum(-1, keepdim=True) - 0.5) ** 2)

    def _respond(self, p, effect, time, suffix=""):
        with ExitStack() as stack:
            if self.fill != "none":
                stack.enter_context(imputation_particles())
                logit = p["fill"] if self.fill == "learned" else p["fill"].detach()
                fill = pyro.sample("fill" + suffix, dist.Bernoulli(logits=logit.expand(self.rows)))
                effect = effect + p["w"][1] * fill * (1.0 - 0.4 * effect)
            stack.enter_context(self._response_scale())
            if self.unseen == "response":
                stack.enter_context(pyro.poutine.mask(mask=self._seen()))
            logits = effect + time + 0.5 * X[: self.rows, 1]
            pyro.sample("y" + suffix, dist.Bernoulli(logits=logits), obs=Y[: self.rows])
            if self.second_response:
                distribution = dist.Normal(0.7 * logits, 1.0)
                pyro.sample("second" + suffix, distribution, obs=X[: self.rows, 0])


def one_of(first, *others, odds=3):
    """Mostly the first."""
    return st.sampled_from([first] * odds + list(others))


@st.composite
def recipes(draw) -> Recipe:
    """Recipes of at most six mask entries a row, small enough to be enumerated."""
    masks, samples = draw(st.sampled_from([(2, 1)] * 4 + [(1, 2)]))
    second = draw(st.booleans())
    groups = draw(one_of(False, True))
    guided = set()
    if draw(st.booleans()):
        guided.add("a")
        if second and draw(st.booleans()):
            guided.add("b")
    if groups and draw(one_of(False, True)):
        guided.add("group")
    small = not (second or groups)
    fill = draw(one_of("none", "fixed", "learned")) if small else "none"
    time = draw(one_of("none", "outer plate", "outer loop", "inner plate", "inner loop"))
    imputations = draw(one_of(1, 2)) if fill != "none" and time == "none" else 1
    wide = small and fill == "none"
    distribution = draw(st.sampled_from(["bernoulli", "k-subset", "categorical"]))
    if wide and draw(st.booleans()):
        distribution = "two entries"
    return Recipe(
        rows=draw(one_of(2, 3, odds=6)) if wide and distribution != "two entries" else 2,
        rows_inside=draw(one_of(False, True, odds=6)),
        distribution=distribution,
        guided=frozenset(guided),
        second=second,
        groups=groups,
        time=time,
        fill=fill,
        scale=draw(st.sampled_from(["row weights", "number", "response"])),
        unseen=draw(one_of("none", "response", "row")),
        factor=draw(one_of("none", "row", "batch")),
        cost=draw(one_of("none", "draw", "distribution", odds=2)),
        second_response=draw(one_of(False, True)),
        masks=masks,
        samples=samples,
        imputations=imputations,
        entropy=draw(st.sampled_from([0.0, 0.3])),
    )
