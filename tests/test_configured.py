"""What parts are written to files as: their constructor's arguments, under their own names."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pyro.nn import PyroModule
from torch import nn

from lexppl import inference, models, systems
from lexppl.configured import Configured
from lexppl.models import MLP, CategoricalLikelihood, ConstantImputer, Predictor, UnmaskedPredictor
from lexppl.models.imputers.imputer import Imputer
from lexppl.saving import describe, known_parts, rebuild
from lexppl.tabular.given_model import OnStandardisedRows

parts = SimpleNamespace(**known_parts())
ROWS = torch.tensor([[0.0, 1.0], [2.0, -1.0], [3.0, 0.5], [-1.0, 0.0]])
LAW = torch.tensor([[0.0, 0.0, 1.0]])


def network(inputs=2, outputs=2):
    return MLP(inputs, outputs, (3,), seed=0)


def predictor():
    return Predictor(network(), CategoricalLikelihood())


def policy():
    return parts.StepPolicy(network(4, 3))


def chooser():
    return parts.SequentialSelector(policy(), 2, 1, 0.05, 0.1)


def program():
    return UnmaskedPredictor(predictor())


BUILT = [
    lambda: MLP(4, 3, (8, 5), "tanh", 3, batch_norm=True, dropout=0.25),
    lambda: parts.ScaledOutput(network(2, 1), 100, 10),
    lambda: models.Grouping([0, 1, 1], names=["a", "b"]),
    lambda: models.Grouping.identity(2),
    lambda: models.Grouping.patches((2, 1, 3), 2),
    lambda: parts.ConvolutionalNetwork((1, 2, 3), 4, (5,)),
    lambda: parts.UNet((1, 1, 2), 2, levels=1, width=2),
    lambda: parts.TorchvisionNetwork("mobilenet_v3_small", (1, 4, 4), 2),
    lambda: parts.Flattened(network()),
    lambda: parts.ExtraChannel((1, 2, 3), 4),
    lambda: models.BernoulliSelector(network()),
    lambda: inference.CrossFitted([network(), network()]),
    lambda: models.KSubsetSelector(network(), 1),
    lambda: models.RandomSelector(2, 0.25),
    lambda: models.PenaltyConditioned(models.BernoulliSelector(network()), 0.01, 0.04),
    lambda: models.MaxConcreteSelector(network(), 1, 0.5),
    lambda: models.DirichletSelector(network()),
    lambda: parts.SoftMaskSelector(network()),
    lambda: models.SizePenalty(1),
    lambda: models.CostPenalty((1, 2), 0.5),
    lambda: models.BetaBernoulliSelector(network(), 1, 3),
    lambda: models.RandomSizeSelector(network(), (1, 2)),
    lambda: models.PriorLogits(network(), (1, -1)),
    lambda: models.ChainSelector(network(), 1.5),
    lambda: models.GridVariationPenalty(0.5, (2, 3)),
    lambda: models.IsingPenalty(0.5, (2, 3)),
    lambda: models.HorseshoeLinear(2, 3, 0.5),
    lambda: models.SiteOffsets(network(), 4, 2),
    lambda: models.TotalVariationPenalty(0.5),
    lambda: models.GiniPenalty(0.5),
    lambda: models.KLPenalty(2, 0.5),
    lambda: parts.BoostedTrees([[0, 1], [2]], 3, 7, depth=2),
    lambda: models.TreePredictor([[0, 1], [2]], [0, 1], None, trees=5, rate=0.2),
    models.GapImputer,
    lambda: models.HiddenByNature(models.GapImputer(), [-1, 2, 2]),
    lambda: parts.ObservedSelector(models.RandomSelector(2), [0, 1], [-1, 2, 2]),
    lambda: parts.GapsFromMarkers(predictor(), [-1, 2, 2]),
    models.HeteroscedasticLikelihood,
    models.CategoricalLikelihood,
    models.BernoulliLikelihood,
    lambda: models.NormalLikelihood(2, learn_scale=False),
    models.PoissonLikelihood,
    models.ZeroInflatedPoissonLikelihood,
    lambda: models.ZeroInflatedNegativeBinomialLikelihood(0.5),
    lambda: models.NegativeBinomialLikelihood(0.5, learn_dispersion=False),
    lambda: models.StudentTLikelihood(3, 2.0),
    lambda: models.OrdinalLikelihood(4),
    lambda: models.CoxLikelihood("breslow"),
    lambda: models.BaselineHazard([1.0, 2.0], [0.5, 1.0]),
    lambda: Predictor(network(), CategoricalLikelihood(), event_dim=3),
    program,
    lambda: models.Frozen(network()),
    lambda: parts.AdaptedNormalisation(network()),
    lambda: models.LEX(
        models.RandomSelector(2),
        ConstantImputer(),
        predictor(),
        [models.SizePenalty(0.5), models.GiniPenalty(0.25)],
        models.Grouping([0, 1]),
    ),
    lambda: models.LEX(models.RandomSelector(2), ConstantImputer(), predictor()),
    policy,
    chooser,
    lambda: parts.SequentialLEX(chooser(), ConstantImputer(), predictor()),
    lambda: ConstantImputer(0.5),
    lambda: models.GaussianImputer([0.0, 1.0], 2.0),
    lambda: models.CopulaImputer.fit(ROWS, factors=1),
    lambda: models.ConditionalGaussianImputer.fit(ROWS),
    lambda: models.MarginalImputer(ROWS.double()),
    lambda: models.GaussianMixtureImputer.fit(ROWS, 2),
    lambda: models.MixtureMeansImputer.fit(ROWS, 2),
    lambda: models.DiscretizedLogisticMixtureImputer([1.0], [[0.5]], [[0.1]]),
    lambda: models.DiscretizedLogisticMeansImputer([1.0], [[0.5]], [[0.1]]),
    lambda: parts.TableDecoder(1, 2, (3,)),
    lambda: parts.ImageEncoder(2, 3, (4, 5)),
    lambda: parts.ImageDecoder(2, 1, 3),
    lambda: models.VAEAC(network(4, 2), parts.TableDecoder(1, 2, (3,))),
    lambda: models.VAEACProposal(network(4, 2)),
    lambda: models.VAEACImputer(
        network(4, 2), parts.TableDecoder(1, 2, (3,)), network(4, 2), (2,), "pixels"
    ),
    lambda: models.MixtureDataImputer.fit(ROWS, 2),
    lambda: models.KMeansDataImputer.fit(ROWS, 2),
    lambda: parts.ComplementImputer(ConstantImputer(0.5)),
    models.SquaredMaskImputer,
    lambda: systems.SENN(network(2, 4), CategoricalLikelihood(), 2, 0, bias=False),
    lambda: parts.SubsetNetwork(4, 2, 0, network(), network()),
    lambda: parts.NoisyFeatures(network(), 0.5, 2),
    lambda: parts.CombinedMask(network(), network()),
    lambda: systems.FadingPrior(1, predictor(), epochs=10),
    lambda: parts.OutputFeedback(network(4, 2), predictor()),
    lambda: parts.FlippedTargets(program(), 2),
    lambda: parts.GlobalImportance(3, predictor(), 0.5, 2),
    lambda: parts.DirichletGuide(3, point=True, kl_weight=2),
    lambda: systems.CXPlain(network()),
    lambda: parts.TeacherTargets(program(), predictor()),
    lambda: systems.FastSHAP(network(), predictor(), 2, None),
    lambda: parts.UniformSizeSelector(3),
    lambda: OnStandardisedRows(predictor(), [5.5, 0.5], [2.0, 1.0], 1, 2),
    lambda: OnStandardisedRows(predictor(), [5.5, 0.5], [2.0, 1.0], places=[0, 2]),
    lambda: parts.WordEmbedding(9, 4, 2),
    lambda: parts.BagOfWords(9, 4, 2, 3, (5,)),
    lambda: parts.TextCNN(9, 4, 2, 3, 4, 2, 5, 0),
    lambda: parts.TextSelector(9, 4, 4, 3, 5, shown=2),
    models.PaddingImputer,
    lambda: models.UnigramImputer(LAW[0]),
    lambda: models.BigramImputer(torch.ones(3, 1), LAW),
]
DESCRIPTIONS = json.loads((Path(__file__).parent / "descriptions.json").read_text("utf-8"))
"""What files of version 0.1.0 call these parts, argument by argument and in this order."""
NAMES = [description["part"] for description in DESCRIPTIONS]
DESCRIBED = list(zip(BUILT, DESCRIPTIONS, strict=True))


@pytest.mark.parametrize(("build", "expected"), DESCRIBED, ids=NAMES)
def test_the_description_on_disk_stays_and_builds_the_same_part_again(build, expected):
    part = build()
    assert json.dumps(describe(part)) == json.dumps(expected)
    again = rebuild(expected, {**known_parts(), "OnStandardisedRows": OnStandardisedRows})
    assert type(again) is type(part)
    assert again.state_dict().keys() == part.state_dict().keys()
    assert describe(again) == expected


def test_every_shipped_part_is_among_them():
    bases = {"CountLikelihood", "Imputer", "Likelihood", "MixtureImputer", "Penalty", "Selector"}
    assert {p.__name__ for p in known_parts().values()} - bases <= {*NAMES, "WordImputer"}


class Shift(Configured, nn.Module):
    def __init__(self, amount, parts=()):
        super().__init__()
        self.amount, self.parts = amount, nn.ModuleList(parts)


class Forgetful(Configured, nn.Module):
    def __init__(self, width):
        super().__init__()
        self.halved = width / 2


class ForgetfulImputer(Imputer):
    def __init__(self, width):
        super().__init__()
        self._register("halved", width / 2)


class Nameless(Configured, nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.widths = widths


class Named(Imputer):
    """Of arguments that are no tensors."""

    def __init__(self, value, name):
        super().__init__()
        self._register("value", value)
        self.name = name


class Further(Shift):
    """Arguments that are passed on belong to the part."""

    def __init__(self, times, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.times = times


class Twice(Shift):
    def __init__(self, half):
        super().__init__(2 * half)
        self.half = half


class Seeded(MLP):
    """What a parent leaves out is an argument of a subclass that keeps it."""

    def __init__(self, seed):
        super().__init__(2, 2, (3,), seed=seed)
        self.seed = seed


class Own(nn.Module):
    """A config written by hand."""

    def __init__(self, amount):
        super().__init__()
        self.doubled = 2 * amount

    def config(self):
        return {"amount": self.doubled / 2}


class Inherited(Shift):
    def config(self):
        return {"amount": 3.0}


@pytest.mark.parametrize(
    ("part", "config"),
    [
        (Shift(torch.tensor([1.0, 2.0])), {"amount": [1.0, 2.0], "parts": []}),
        (Shift((1, 2)), {"amount": [1, 2], "parts": []}),
        (Named(1.0, "noise"), {"value": {"shape": [], "dtype": "float32"}, "name": "noise"}),
        (Further(2, 0.5), {"times": 2, "amount": 0.5, "parts": []}),
        (Further(**Further(2, 0.5).config()), {"times": 2, "amount": 0.5, "parts": []}),
        (Twice(0.5), {"half": 0.5}),
        (Seeded(7), {"seed": 7}),
        (Own(0.5), {"amount": 0.5}),
        (Inherited(0.5), {"amount": 3.0}),
        (PyroModule[MLP](2, 2, (3,)), network().config()),
    ],
)
def test_a_config_has_the_arguments_of_the_class(part, config):
    assert part.config() == config


def test_module_lists_are_lists_and_a_config_by_hand_is_read():
    first = network()
    assert Shift(0, [first]).config()["parts"] == [first]
    described = describe(Own(0.5))
    assert described == {"part": "Own", "config": {"amount": 0.5}}
    assert describe(Inherited(0.5)) == {"part": "Inherited", "config": {"amount": 3.0}}
    assert rebuild(described, {"Own": Own}).doubled == 1.0


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Forgetful(4), r"Forgetful does not keep .* argument 'width'"),
        (ForgetfulImputer(4), r"ForgetfulImputer does not keep .* argument 'width'"),
        (Nameless(1, 2), r"Nameless takes arguments without names \(\*args\)"),
    ],
)
def test_arguments_that_cannot_be_read_again_are_refused(part, message):
    with pytest.raises(TypeError, match=message):
        part.config()
