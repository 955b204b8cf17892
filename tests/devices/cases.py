"""What is certified: fits of every system, estimator, imputer, likelihood, penalty and network."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyro.distributions as dist
import torch
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoIAFNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)

from lexppl import inference as estimate
from lexppl import models
from lexppl.choices.imputers import IMPUTERS, NOT_OF_IMAGES, OF_PIXELS
from lexppl.distributions import geometric_sizes
from lexppl.inference import ReplicateData, TrainingOptions, annealed
from lexppl.models.architectures.base import TableArchitecture
from lexppl.models.imputers import imputer_of
from lexppl.models.missing import HiddenByNature
from lexppl.models.predictor import table_predictor
from lexppl.saving.description import known_parts
from lexppl.systems import METHODS, cxplain, fit_vaeac, lex, system_for
from tests.devices.programs import OfMasks, OfWeights

parts = SimpleNamespace(**known_parts())

FEATURES, CLASSES, ROWS = 4, 3, 24
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(ROWS, FEATURES, generator=GENERATOR)
LABELS = torch.arange(ROWS) % CLASSES
BINARY = torch.arange(ROWS) % 2
RESPONSE = X[:, 0] * 2.0 + 1.0
COUNTS = (torch.arange(ROWS) % 5).float()
TIMES = torch.stack([X[:, 0].exp() + 0.1, (torch.arange(ROWS) % 3 > 0).float()], -1)
STRATA = torch.cat([TIMES, (torch.arange(ROWS) % 2).float().unsqueeze(-1)], -1)
SHAPE = (1, 8, 8)
PIXELS = torch.rand(ROWS, *SHAPE, generator=GENERATOR)
WORDS = torch.randint(1, 9, (ROWS, 6), generator=GENERATOR).float() * torch.tensor(
    [[1.0] * 4 + [0.0] * 2, [1.0] * 6]
).repeat(ROWS // 2, 1)
SMALL = {"hidden": (6,), "predictor_hidden": (6, 6)}


@dataclass(frozen=True)
class Case:
    """A fit whose steps are certified.

    Args:
        model: makes what `fit` is given as its model.
        train: its rows.
        options: others of its arguments.
        replicates: numbers of them that it is certified with.
        refused: why it cannot run so, where it cannot.
    """

    model: Callable[[], Any]
    train: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    replicates: tuple[int, ...] = (1, 3)
    refused: str | None = None


def _settings(
    name: str, architecture: Any = FEATURES, classes: int | None = CLASSES
) -> dict[str, Any]:
    box = table_predictor(FEATURES, classes, (5,))
    small: dict[str, Any] = SMALL
    if not isinstance(architecture, int):
        network = architecture.predictor(classes, seed=0)
        rank = len(architecture.event_shape)
        box, small = models.Predictor(network, models.CategoricalLikelihood(), rank), {}
    k = 2 if METHODS[name].needs("k") else None
    return dict(features=architecture, classes=classes, k=k, black_box=box, **small)


def _system(name: str, *architecture: Any, classes: int | None = CLASSES) -> Callable[[], Any]:
    return lambda: system_for(name, _settings(name, *architecture, classes=classes))


def systems() -> Iterator[tuple[str, Case]]:
    """Every system by name, of labels and of responses, and what else its factory can be told."""
    for name, method in METHODS.items():
        yield name, Case(_system(name), (X, LABELS))
        if not method.labels_only:
            yield f"{name} response", Case(_system(name, classes=None), (X, RESPONSE))
    told: list[tuple[str, dict[str, Any]]] = [
        ("real_x", {"alternate": True}),
        ("real_x", {"folds": 2, "towards": 0.7}),
        ("lex", {"k": 2, "imputations": 2}),
        ("lex", {"labels": "averaged"}),
        ("lex", {"folds": 1}),
        ("suwr", {"schedule": "constant", "folds": 1, "most": 2}),
        ("xtab", {"subsets": 2}),
        ("q_fit", {"point": True}),
        ("meed", {"output_feedback": False}),
        ("senn", {"bias": False}),
    ]
    for name, options in told:
        factory = METHODS[name].factory
        given = {key: value for key, value in _settings(name).items() if value is not None}
        kept = {k: v for k, v in given.items() if METHODS[name].takes(k)} | options
        words = ", ".join(f"{key}={value}" for key, value in options.items())
        yield f"{name} {words}", Case(partial(factory, **kept), (X, LABELS))
    shares = torch.softmax(X, -1)
    yield "cxplain", Case(lambda: cxplain(FEATURES, hidden=(6,)), (X, shares))


def _explainer(
    selector: Any = None, imputer: Any = None, predictor: Any = None, penalties: Any = ()
) -> models.LEX:
    network = models.MLP(FEATURES, FEATURES, (6,))
    likelihood = models.CategoricalLikelihood()
    return models.LEX(
        (selector or models.BernoulliSelector)(network),
        imputer or models.GaussianImputer(),
        predictor or models.Predictor(models.MLP(FEATURES, CLASSES, (6,)), likelihood),
        penalties,
    )


SELECTORS: dict[str, Callable[[Any], Any]] = {
    "Bernoulli": models.BernoulliSelector,
    "k-subset": partial(models.KSubsetSelector, k=2),
    "chain": models.ChainSelector,
    "random size": lambda network: models.RandomSizeSelector(
        network, geometric_sizes(0.5, FEATURES)
    ),
    "top-k": partial(models.MaxConcreteSelector, k=2),
    "soft": parts.SoftMaskSelector,
    "Beta-Bernoulli": models.BetaBernoulliSelector,
    "Dirichlet": models.DirichletSelector,
    "prior logits": lambda network: models.BernoulliSelector(
        models.PriorLogits(network, (1.0, -1.0, 0.0, 0.5))
    ),
}


def _estimators() -> dict[str, tuple[Any, tuple[str, ...]]]:
    hard = ("Bernoulli", "k-subset", "chain", "random size")
    return {
        "leave-one-out": (estimate.LeaveOneOut(), hard),
        "leave-one-out averaged": (estimate.LeaveOneOut(labels="averaged"), hard),
        "score": (estimate.ScoreFunction(0.5), hard),
        "REBAR": (estimate.REBAR(), ("Bernoulli",)),
        "REBAR straight": (estimate.REBAR(straight_through=True), ("Bernoulli",)),
        "REBAR tuned": (estimate.REBAR(control=estimate.TunedControl()), ("Bernoulli",)),
        "DisARM": (estimate.DisARM(), ("Bernoulli",)),
        "enumerate": (estimate.Enumerate(), hard),
        "pathwise": (estimate.Pathwise(), ("Bernoulli", "top-k")),
        "plug-in mean": (estimate.PlugInMean(), ("Bernoulli", "k-subset")),
        "self-normalized": (estimate.SelfNormalized(), hard),
        "straight-through": (estimate.StraightThrough(), ("Bernoulli",)),
        "marginal straight": (estimate.MarginalStraightThrough(), ("Bernoulli", "k-subset")),
        "unscored": (estimate.Unscored(), ("soft",)),
    }


def estimators() -> Iterator[tuple[str, Case]]:
    """Every estimator under LEX, with the masks that it takes."""
    for name, (estimator, selectors) in _estimators().items():
        masks = math.inf if name == "enumerate" else 3
        samples = 2 if name == "DisARM" else 1
        for selector in selectors:
            objective = annealed(masks, estimator=estimator, samples=samples)
            if selector in ("top-k", "soft") or name in ("pathwise", "plug-in mean"):
                objective = annealed(masks, estimator=estimator, entropy=0.0)
            listed = name == "enumerate" and selector != "Bernoulli"
            refused = "lists the masks on the host, for each step anew" if listed else None
            explainer = partial(_explainer, SELECTORS[selector])
            case = Case(explainer, (X, LABELS), {"objective": objective}, refused=refused)
            yield f"{name}, {selector}", case
    for name in ("prior logits",):
        yield f"leave-one-out, {name}", Case(partial(_explainer, SELECTORS[name]), (X, LABELS))
    for name, options in {
        "two imputations": {"imputations": 2},
        "two samples": {"samples": 2},
        "two copies": {"copies": 2},
        "random masks": {"random_masks": 0.5},
    }.items():
        objective = annealed(2, **options)
        yield f"bound of {name}", Case(_explainer, (X, LABELS), {"objective": objective})


def _hidden_by_nature() -> models.LEX:
    markers = (-1, -1, 3, 3)
    network = models.BernoulliSelector(models.MLP(3, 3, (6,)))
    likelihood = models.CategoricalLikelihood()
    return models.LEX(
        parts.ObservedSelector(network, range(3), markers),
        HiddenByNature(models.MarginalImputer(X[:, :3]), markers),
        models.Predictor(models.MLP(3, CLASSES, (6,)), likelihood),
    )


def imputers() -> Iterator[tuple[str, Case]]:
    """Every imputer of tables under LEX with three estimators; of images and of texts with one."""
    of_tables: dict[str, Callable[[], Any]] = {
        **{name: partial(imputer_of, name, X, 0) for name in IMPUTERS},
        "complement": lambda: parts.ComplementImputer(models.GaussianImputer()),
        "squared": models.SquaredMaskImputer,
        "vaeac": lambda: fit_vaeac(X, latent=2, width=4, epochs=1),
    }
    chosen = ("leave-one-out", "REBAR", "straight-through")
    for name, make in of_tables.items():
        # A copula refuses masks with a gradient.
        for estimator in chosen[:1] if name == "copula" else chosen:
            objective = annealed(2, imputations=2, estimator=_estimators()[estimator][0])
            explainer = lambda make=make: _explainer(imputer=make())  # noqa: E731
            yield f"{name}, {estimator}", Case(explainer, (X, LABELS), {"objective": objective})
    marked = X.clone()
    marked[:, 3] = (X[:, 3] > 0).float()
    yield "hidden by nature", Case(_hidden_by_nature, (marked, LABELS))
    for name in (*(n for n in IMPUTERS if n not in NOT_OF_IMAGES), *OF_PIXELS):
        make = partial(imputer_of, name, PIXELS, 0)
        yield (
            f"{name} of images",
            Case(lambda make=make: lex(images(), classes=2, imputer=make()), (PIXELS, BINARY)),
        )
    of_words: dict[str, Callable[[], Any]] = {
        "padding": models.PaddingImputer,
        "unigram": lambda: models.UnigramImputer.fit(WORDS, 9),
        "bigram": lambda: models.BigramImputer.fit(WORDS, 9, classes=2),
    }
    for name, make in of_words.items():
        yield (
            f"{name} of texts",
            Case(lambda make=make: lex(words(), classes=2, imputer=make()), (WORDS, BINARY)),
        )


def images(**options: Any) -> Any:
    """A small architecture of images."""
    return models.images(SHAPE, patches=4, **{"blocks": (2,), "levels": 1, "width": 2, **options})


def flat_images(**options: Any) -> Any:
    """The same of fully connected networks."""
    return models.flat_images(SHAPE, patches=4, hidden=(6,), predictor_hidden=(6,), **options)


def words(**options: Any) -> Any:
    """A small architecture of texts."""
    small = {"embedding": 4, "filters": 4, "hidden": 4}
    return models.texts(9, 6, **{**small, **options})


def architectures() -> Iterator[tuple[str, Case]]:
    """Every system on images and on texts that has a form for them, and what networks can have."""
    for name in METHODS:
        if name not in ("xtab", "suwr"):
            yield f"{name} of images", Case(_system(name, images(), classes=2), (PIXELS, BINARY))
        if name not in ("xtab", "suwr", "senn"):
            yield f"{name} of texts", Case(_system(name, words(), classes=2), (WORDS, BINARY))
    yield "flat images", Case(_system("lex", flat_images(), classes=2), (PIXELS, BINARY))
    for name in ("lex", "real_x", "invase"):
        for make in (images, flat_images):
            architecture = make(batch_norm=True)
            yield (
                f"{name} of {make.__name__}, batch norm",
                Case(_system(name, architecture, classes=2), (PIXELS, BINARY)),
            )
    cnn = words(predictor="cnn", dropout=0.5)
    yield "cnn of texts", Case(_system("lex", cnn, classes=2), (WORDS, BINARY))
    table = TableArchitecture(FEATURES, (6,), (6,), "selu", batch_norm=True)
    yield "table, batch norm", Case(lambda: lex(table, classes=CLASSES), (X, LABELS))
    grouping = models.Grouping([0, 1, 1, 2])
    yield (
        "groups",
        Case(lambda: lex(FEATURES, classes=CLASSES, grouping=grouping, **SMALL), (X, LABELS)),
    )


def likelihoods() -> Iterator[tuple[str, Case]]:
    """Every likelihood under LEX."""
    every: dict[str, tuple[Any, Any]] = {
        "Bernoulli": (models.BernoulliLikelihood(), BINARY.float()),
        "normal": (models.NormalLikelihood(), RESPONSE),
        "heteroscedastic": (models.HeteroscedasticLikelihood(), RESPONSE),
        "Student-t": (models.StudentTLikelihood(learn_degrees=True), RESPONSE),
        "Poisson": (models.PoissonLikelihood(), COUNTS),
        "zero-inflated Poisson": (models.ZeroInflatedPoissonLikelihood(), COUNTS),
        "negative binomial": (models.NegativeBinomialLikelihood(), COUNTS),
        "zero-inflated negative binomial": (
            models.ZeroInflatedNegativeBinomialLikelihood(),
            COUNTS,
        ),
        "Cox": (models.CoxLikelihood(), TIMES),
        "Cox, Breslow": (models.CoxLikelihood("breslow"), TIMES),
        "Cox, strata": (models.CoxLikelihood(stratified=True), STRATA),
    }
    for name, (likelihood, y) in every.items():
        classes = 2 if name == "Bernoulli" else None
        make = partial(lex, FEATURES, classes=classes, likelihood=likelihood, folds=1, **SMALL)
        copied = "torch's Student-t copies a number from the host" if name == "Student-t" else None
        yield name, Case(make, (X, y), refused=copied)
    ordinal = models.OrdinalLikelihood(CLASSES)
    yield (
        "ordinal",
        Case(partial(lex, FEATURES, classes=CLASSES, likelihood=ordinal, **SMALL), (X, LABELS)),
    )
    told = torch.softmax(X[:, :CLASSES], -1)
    yield "probabilities", Case(partial(lex, FEATURES, classes=CLASSES, **SMALL), (X, told))


def penalties() -> Iterator[tuple[str, Case]]:
    """Every penalty under LEX; those of pairs on a grid of the entries."""
    every = [
        models.SizePenalty(0.1),
        models.CostPenalty((1.0, 2.0, 0.5, 0.0), 0.1),
        models.TotalVariationPenalty(0.1),
        models.GridVariationPenalty(0.1, (2, 2)),
        models.GridVariationPenalty(0.1, (2, 2), 8),
        models.IsingPenalty(0.1, (2, 2)),
    ]
    for place, one in enumerate(every):
        for selector in ("Bernoulli", "k-subset"):
            make = partial(_explainer, SELECTORS[selector], None, None, [one])
            yield f"{type(one).__name__} {place}, {selector}", Case(make, (X, LABELS))
    for one, selector in (
        (models.KLPenalty(0.1, 0.3), "top-k"),
        (models.KLPenalty(0.1, 0.3), "Dirichlet"),
        (models.GiniPenalty(0.1), "soft"),
    ):
        make = partial(_explainer, SELECTORS[selector], None, None, [one])
        objective = annealed(2, entropy=0.0, estimator=estimate.Pathwise())
        if selector == "soft":
            objective = annealed(2, entropy=0.0, estimator=estimate.Unscored())
        yield f"{type(one).__name__}, {selector}", Case(make, (X, LABELS), {"objective": objective})


def fits() -> Iterator[tuple[str, Case]]:
    """What `fit` can be told beside its model."""
    small = partial(lex, FEATURES, classes=CLASSES, **SMALL)
    weights = torch.arange(ROWS) % 3 + 1.0
    mixed = {"training": TrainingOptions(precision="bf16-mixed")}
    told: dict[str, dict[str, Any]] = {
        "folds": {"folds": 3},
        "drawn row weights": {"row_weights": "dirichlet"},
        "row weights": {"row_weights": weights},
        "sample weights": {"sample_weight": weights, "row_weights": "dirichlet"},
        "clipped": {"training": TrainingOptions(clip_norm=1.0)},
        "SGD": {"optimizer": partial(torch.optim.SGD, lr=0.1)},
        "mini-batches": {"batch_size": 10},
        "products in bf16": mixed,
    }
    for name, options in told.items():
        yield name, Case(small, (X, LABELS), options)
    for method in ("real_x", "l2x", "fastshap", "senn"):
        yield f"{method} with products in bf16", Case(_system(method), (X, LABELS), mixed)
    convolved = _system("lex", images(), classes=2)
    yield "images with products in bf16", Case(convolved, (PIXELS, BINARY), mixed)
    several = [(X, LABELS), (-X, LABELS.flip(0))]
    yield "rows of each replicate", Case(small, ReplicateData(several), {}, (1,))
    yield (
        "numbers of each replicate",
        Case(lambda: [small(penalty=value) for value in (0.01, 0.1)], (X, LABELS), {}, (1,)),
    )
    yield (
        "sizes of each replicate",
        Case(lambda: [small(k=k) for k in (1, 3)], (X, LABELS), {}, (1,)),
    )


def guides() -> Iterator[tuple[str, Case]]:
    """Posteriors of weights, of sizes and of masks, by Pyro's guides and by its bounds."""
    every: dict[str, Any] = {
        "normal": AutoNormal,
        "diagonal": AutoDiagonalNormal,
        "multivariate": AutoMultivariateNormal,
        "low rank": partial(AutoLowRankMultivariateNormal, rank=2),
        "delta": AutoDelta,
        "autoregressive flow": AutoIAFNormal,
    }
    prior = dist.Normal(0.0, 1.0)
    for name, guide in every.items():
        explainer = partial(lex, FEATURES, classes=CLASSES, prior=prior, **SMALL)
        yield f"{name} of weights", Case(explainer, (X, LABELS), {"guide": guide})
        yield f"{name} of a scale", Case(OfWeights, (X, RESPONSE), {"guide": guide})
    options = {"guide": AutoNormal, "objective": Trace_ELBO()}
    reads = "Pyro's bounds read a weight off as a number"
    yield "Pyro's bound", Case(OfWeights, (X, RESPONSE), options, refused=reads)
    yield "a guide of masks", Case(OfMasks, (X, LABELS), {"guide": OfMasks.Guide()})


def trees() -> Iterator[tuple[str, Case]]:
    """Trees, which are tensors once they are fitted."""

    def explained(predictor: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: lex(FEATURES, classes=CLASSES, predictor=predictor(), hidden=(6,))

    grown = partial(models.tree_predictor, X, CLASSES, trees=2, copies=2)
    yield "trees", Case(explained(grown), (X, LABELS))


GROUPS: dict[str, Callable[[], Iterator[tuple[str, Case]]]] = {
    one.__name__: one
    for one in (
        systems,
        estimators,
        imputers,
        architectures,
        likelihoods,
        penalties,
        fits,
        guides,
        trees,
    )
}


def covering() -> Iterator[tuple[str, str, Case]]:
    """Of every group the cases of which some part is in none before: each estimator, each kind of
    mask, each imputer, but not each with each."""
    for group, cases in GROUPS.items():
        seen: set[str] = set()
        for name, case in cases():
            parts = set(name.replace(" of ", ", ").split(", "))
            if parts - seen:
                yield group, name, case
            seen |= parts
