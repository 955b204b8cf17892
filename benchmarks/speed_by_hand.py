"""Steps of four systems written out in torch: what the library's are timed against.

Each does what its system minimises and no more, with the same networks, noise, optimizer and number
of runs of each network, as one would write it for that system alone.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn

from lexppl.inference import System
from lexppl.models import MLP, GaussianImputer
from lexppl.systems import invase, l2x, lex, real_x

FEATURES, CLASSES, K = 11, 2, 5
MASKS = 4
"""LEX's L."""
PENALTY, TEMPERATURE = 0.02, 0.1
START = math.log(0.8 / 0.2)
"""LEX's masks start at keeping eight of ten."""
binary_cross_entropy = nn.functional.binary_cross_entropy_with_logits


def clock() -> float:
    """Seconds that this thread has had of the processor; of several threads, on the wall."""
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


class ByHand(ABC):
    """A training loop of one system.

    Args:
        width: of all hidden layers, two a network.
        x, y: the rows.
        batch: rows of a step.
    """

    def __init__(self, width: int, x: Tensor, y: Tensor, batch: int) -> None:
        self.x, self.y, self.batch, self.widths = x, y, batch, (width, width)
        parameters = list(self.made())
        for part in vars(self).values():
            if isinstance(part, nn.Module):
                part.to(x.device)
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3, weight_decay=1e-3, fused=True)

    def epoch(self, progress: float) -> float:
        """Seconds of an epoch."""
        start = clock()
        for places in torch.randperm(len(self.x)).split(self.batch):
            self.optimizer.zero_grad()
            self.loss(self.x[places], self.y[places], progress).backward()
            self.optimizer.step()
        return clock() - start

    @abstractmethod
    def made(self) -> Iterable[Tensor]:
        """Make the networks; what is learned."""

    @abstractmethod
    def loss(self, x: Tensor, y: Tensor, progress: float) -> Tensor:
        """Of a batch, in nats a row."""


def leave_one_out(log_w: Tensor) -> tuple[Tensor, Tensor]:
    """The bound of L masks, `(B,)`, and what each is worth beside the others, `(L, B)`."""
    count = len(log_w)
    bound = torch.logsumexp(log_w, 0) - math.log(count)
    with torch.no_grad():
        others = (log_w.sum(0) - log_w) / (count - 1)
        alone = torch.eye(count, dtype=torch.bool, device=log_w.device)
        alone = alone.reshape(count, count, *[1] * (log_w.dim() - 1))
        replaced = torch.where(alone, others, log_w[None])
        signal = bound - (torch.logsumexp(replaced, 1) - math.log(count))
    return bound, signal


def annealing(progress: float) -> tuple[float, float]:
    """The weight of the entropy and the share of the penalty."""
    return max(0.0, 0.1 - progress / 6), min(1.0, max(0.0, 2 * progress - 0.6))


def bonus(logits: Tensor) -> Tensor:
    """Minus the divergence from masks that keep eight of ten, by row."""
    rates = torch.sigmoid(logits)
    entropy = binary_cross_entropy(logits, rates, reduction="none").sum(-1)
    size = rates.sum(-1)
    return entropy + size * math.log(0.8) + (logits.shape[-1] - size) * math.log(0.2)


def log_prob(outputs: Tensor, y: Tensor) -> Tensor:
    """`log p(y)` of logits `(…, B, C)`."""
    logs = torch.log_softmax(outputs, -1)
    return logs.gather(-1, y.expand(logs.shape[:-1]).unsqueeze(-1)).squeeze(-1)


class LexByHand(ByHand):
    """LEX with Bernoulli masks: leave-one-out, standard normal imputation, the annealing."""

    def made(self) -> Iterable[Tensor]:
        self.selector = MLP(FEATURES, FEATURES, self.widths, seed=0)
        self.predictor = MLP(FEATURES, CLASSES, self.widths, seed=1)
        return [*self.selector.parameters(), *self.predictor.parameters()]

    def loss(self, x: Tensor, y: Tensor, progress: float) -> Tensor:
        logits = self.selector(x) + START
        return annealed_loss(logits, x, y, progress, self.predictor).mean()


def annealed_loss(
    logits: Tensor, x: Tensor, y: Tensor, progress: float, predictor: Callable[[Tensor], Tensor]
) -> Tensor:
    """LEX's loss by row, `(…, B)`, of selectors' logits `(…, B, G)`."""
    several = (MASKS, *[-1] * logits.dim())
    with torch.no_grad():
        mask = torch.bernoulli(torch.sigmoid(logits).expand(several))
    log_q = -binary_cross_entropy(logits.expand(several), mask, reduction="none").sum(-1)
    x_imputed = torch.where(mask == 1, x, torch.randn_like(mask))
    bound, signal = leave_one_out(log_prob(predictor(x_imputed), y))
    entropy, share = annealing(progress)
    loss = -bound - (log_q * signal).sum(0) - entropy * bonus(logits)
    return loss + PENALTY * share * torch.sigmoid(logits).sum(-1)


class L2XByHand(ByHand):
    """L2X: the largest of k Concrete draws, pathwise; a predictor with batch norm."""

    def made(self) -> Iterable[Tensor]:
        self.selector = MLP(FEATURES, FEATURES, self.widths, seed=0)
        self.predictor = MLP(FEATURES, CLASSES, self.widths, batch_norm=True, seed=1)
        return [*self.selector.parameters(), *self.predictor.parameters()]

    def loss(self, x: Tensor, y: Tensor, progress: float) -> Tensor:
        logits = self.selector(x)
        noise = torch.rand(K, *logits.shape, device=x.device).clamp(1e-7, 1 - 1e-7)
        gumbel = -torch.log(-torch.log(noise))
        mask = ((logits + gumbel) / TEMPERATURE).softmax(-1).amax(0)
        return nn.functional.cross_entropy(self.predictor(mask * x), y)


class InvaseByHand(ByHand):
    """INVASE: the score function, with a predictor of all of x as its control variate."""

    def made(self) -> Iterable[Tensor]:
        self.selector = MLP(FEATURES, FEATURES, self.widths, seed=0)
        self.critic = MLP(FEATURES, CLASSES, self.widths, batch_norm=True, seed=1)
        self.baseline = MLP(FEATURES, CLASSES, self.widths, batch_norm=True, seed=2)
        parts = (self.selector, self.critic, self.baseline)
        return [p for part in parts for p in part.parameters()]

    def loss(self, x: Tensor, y: Tensor, progress: float) -> Tensor:
        logits = self.selector(x)
        with torch.no_grad():
            mask = torch.bernoulli(torch.sigmoid(logits))
        log_q = -binary_cross_entropy(logits, mask, reduction="none").sum(-1)
        critic = log_prob(self.critic(mask * x), y)
        baseline = log_prob(self.baseline(x), y)
        score = (critic - baseline).detach() * log_q
        size = 0.1 / FEATURES * torch.sigmoid(logits).sum(-1)
        return (size - critic - baseline - score).mean()


class RealXByHand(ByHand):
    """REAL-X: a predictor of random masks, a selector by REBAR, in the same steps."""

    def made(self) -> Iterable[Tensor]:
        self.selector = MLP(FEATURES, FEATURES, self.widths, seed=0)
        self.predictor = MLP(FEATURES, CLASSES, self.widths, seed=1)
        self.moved = list(self.predictor.parameters())
        return [*self.selector.parameters(), *self.moved]

    def loss(self, x: Tensor, y: Tensor, progress: float) -> Tensor:
        random = torch.bernoulli(torch.full_like(x, 0.5))
        learned = log_prob(self.predictor(random * x), y)
        # What the selector's part does not move has no gradient there.
        for parameter in self.moved:
            parameter.requires_grad_(False)
        logits = self.selector(x)
        noise = torch.rand_like(logits).clamp(1e-7, 1 - 1e-7)
        logistic = logits + torch.log(noise) - torch.log1p(-noise)
        with torch.no_grad():
            mask = (logistic > 0).to(x.dtype)
            hard = log_prob(self.predictor(mask * x), y)
        log_q = -binary_cross_entropy(logits, mask, reduction="none").sum(-1)
        again = torch.rand_like(logits).clamp(1e-7, 1 - 1e-7)
        rates = torch.sigmoid(-logits)
        within = torch.where(mask == 1, rates + again * (1 - rates), again * rates)
        given = logits + torch.log(within) - torch.log1p(-within)
        free = log_prob(self.predictor(torch.sigmoid(logistic / TEMPERATURE) * x), y)
        bound = log_prob(self.predictor(torch.sigmoid(given / TEMPERATURE) * x), y)
        for parameter in self.moved:
            parameter.requires_grad_()
        gain = (hard - bound).detach() * log_q + free - bound
        size = 0.01 * torch.sigmoid(logits).sum(-1)
        return (size - gain - learned).mean()


class ReplicatesByHand(ByHand):
    """LEX, R times in one product: each layer a batch of R matrices."""

    replicates = 1

    def made(self) -> Iterable[Tensor]:
        def layers(outputs: int) -> list[tuple[Tensor, Tensor]]:
            sizes = (FEATURES, *self.widths, outputs)
            return [
                (
                    (torch.randn(self.replicates, a, b) / math.sqrt(a)).requires_grad_(),
                    torch.zeros(self.replicates, 1, b, requires_grad=True),
                )
                for a, b in pairwise(sizes)
            ]

        self.selector, self.predictor = layers(FEATURES), layers(CLASSES)
        return [p for layer in (*self.selector, *self.predictor) for p in layer]

    def loss(self, x: Tensor, y: Tensor, progress: float) -> Tensor:
        def predict(rows: Tensor) -> Tensor:
            masks, replicates, size, features = rows.shape
            flat = rows.transpose(0, 1).reshape(replicates, masks * size, features)
            found = run(self.predictor, flat).reshape(replicates, masks, size, CLASSES)
            return found.transpose(0, 1)

        every = x.expand(self.replicates, *x.shape)
        logits = run(self.selector, every) + START
        return annealed_loss(logits, every, y, progress, predict).mean(-1).sum()


def run(layers: list[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """R perceptrons at once."""
    for number, (weight, bias) in enumerate(layers):
        x = torch.baddbmm(bias, x, weight)
        if number + 1 < len(layers):
            x = torch.relu(x)
    return x


def replicates_by_hand(count: int) -> type[ByHand]:
    """The loop of R replicates."""
    return type("Several", (ReplicatesByHand,), {"replicates": count})


BY_HAND: dict[str, type[ByHand]] = {
    "LEX": LexByHand,
    "L2X": L2XByHand,
    "INVASE": InvaseByHand,
    "REAL-X": RealXByHand,
}


def system(name: str, width: int) -> System:
    """The library's, with the same networks."""
    options = {
        "classes": CLASSES,
        "hidden": (width, width),
        "predictor_hidden": (width, width),
    }
    if name == "LEX":
        options["imputer"] = GaussianImputer()
        return lex(FEATURES, folds=1, penalty=PENALTY, masks=MASKS, **options)
    if name == "L2X":
        return l2x(FEATURES, k=K, temperature=TEMPERATURE, **options)
    if name == "INVASE":
        return invase(FEATURES, **options)
    return real_x(FEATURES, temperature=TEMPERATURE, alternate=True, **options)
