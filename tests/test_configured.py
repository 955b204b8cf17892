"""What parts are written to files as: their constructor's arguments, under their own names."""

import json
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


def told(part, **config):
    return {"part": part, "config": config}


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


def tensor(*shape, dtype="float32"):
    return {"shape": list(shape), "dtype": dtype}


def network_told(inputs=2, outputs=2):
    return told(
        "MLP",
        inputs=inputs,
        outputs=outputs,
        hidden=[3],
        activation="relu",
        batch_norm=False,
        dropout=0.0,
    )


NETWORK = network_told()
LABELS = told("CategoricalLikelihood")
PREDICTOR = told("Predictor", network=NETWORK, likelihood=LABELS, event_dim=1)
PROGRAM = told("UnmaskedPredictor", predictor=PREDICTOR)
CONSTANT = told("ConstantImputer", value=tensor())
POLICY = told("StepPolicy", network=network_told(4, 3))
CHOOSER = told(
    "SequentialSelector",
    policy=POLICY,
    entries=2,
    most=1,
    explore=0.05,
    explore_stop=0.1,
    grouping=None,
)
MIXTURE = {"weights": tensor(2), "means": tensor(2, 2), "scales": tensor(2, 2)}

OF_MODELS = [
    (
        lambda: MLP(4, 3, (8, 5), "tanh", 3, batch_norm=True, dropout=0.25),
        told(
            "MLP",
            inputs=4,
            outputs=3,
            hidden=[8, 5],
            activation="tanh",
            batch_norm=True,
            dropout=0.25,
        ),
    ),
    (
        lambda: parts.ScaledOutput(network(2, 1), 100, 10),
        told("ScaledOutput", network=network_told(2, 1), shift=100.0, scale=10.0),
    ),
    (
        lambda: models.Grouping([0, 1, 1], names=["a", "b"]),
        told("Grouping", groups=[0, 1, 1], names=["a", "b"], event_shape=[3]),
    ),
    (
        lambda: models.Grouping.identity(2),
        told("Grouping", groups=[0, 1], names=["x1", "x2"], event_shape=[2]),
    ),
    (
        lambda: models.Grouping.patches((2, 1, 3), 2),
        told("Grouping", groups=[0, 0, 1], names=["r1 c1", "r1 c2"], event_shape=[2, 1, 3]),
    ),
    (
        lambda: parts.ConvolutionalNetwork((1, 2, 3), 4, (5,)),
        told(
            "ConvolutionalNetwork",
            shape=[1, 2, 3],
            outputs=4,
            blocks=[5],
            convolutions=2,
            batch_norm=False,
        ),
    ),
    (
        lambda: parts.UNet((1, 1, 2), 2, levels=1, width=2),
        told(
            "UNet",
            shape=[1, 1, 2],
            outputs=2,
            grouping=None,
            levels=1,
            width=2,
            activation="relu",
            batch_norm=False,
        ),
    ),
    (
        lambda: parts.TorchvisionNetwork("mobilenet_v3_small", (1, 4, 4), 2),
        told("TorchvisionNetwork", name="mobilenet_v3_small", shape=[1, 4, 4], outputs=2),
    ),
    (lambda: parts.Flattened(network()), told("Flattened", network=NETWORK)),
    (
        lambda: parts.ExtraChannel((1, 2, 3), 4),
        told("ExtraChannel", shape=[1, 2, 3], shown=4),
    ),
    (
        lambda: models.BernoulliSelector(network()),
        told("BernoulliSelector", network=NETWORK, rate=0.5),
    ),
    (
        lambda: inference.CrossFitted([network(), network()]),
        told("CrossFitted", predictors=[NETWORK, NETWORK]),
    ),
    (lambda: models.KSubsetSelector(network(), 1), told("KSubsetSelector", network=NETWORK, k=1)),
    (lambda: models.RandomSelector(2, 0.25), told("RandomSelector", entries=2, rate=0.25)),
    (
        lambda: models.PenaltyConditioned(models.BernoulliSelector(network()), 0.01, 0.04),
        told(
            "PenaltyConditioned",
            selector=told("BernoulliSelector", network=NETWORK, rate=0.5),
            low=0.01,
            high=0.04,
            middle=0.02,
            penalty=0.02,
        ),
    ),
    (
        lambda: models.MaxConcreteSelector(network(), 1, 0.5),
        told("MaxConcreteSelector", network=NETWORK, k=1, temperature=0.5),
    ),
    (lambda: models.DirichletSelector(network()), told("DirichletSelector", network=NETWORK)),
    (lambda: parts.SoftMaskSelector(network()), told("SoftMaskSelector", network=NETWORK)),
    (lambda: models.SizePenalty(1), told("SizePenalty", weight=1.0)),
    (
        lambda: models.CostPenalty((1, 2), 0.5),
        told("CostPenalty", costs=[1.0, 2.0], weight=0.5),
    ),
    (
        lambda: models.BetaBernoulliSelector(network(), 1, 3),
        told("BetaBernoulliSelector", network=NETWORK, a=1.0, b=3.0),
    ),
    (
        lambda: models.RandomSizeSelector(network(), (1, 2)),
        told("RandomSizeSelector", network=NETWORK, sizes=[1.0, 2.0]),
    ),
    (
        lambda: models.PriorLogits(network(), (1, -1)),
        told("PriorLogits", network=NETWORK, log_odds=[1.0, -1.0]),
    ),
    (
        lambda: models.ChainSelector(network(), 1.5),
        told("ChainSelector", network=NETWORK, coupling=1.5, learned=False),
    ),
    (
        lambda: models.GridVariationPenalty(0.5, (2, 3)),
        told("GridVariationPenalty", weight=0.5, shape=[2, 3], neighbours=4),
    ),
    (
        lambda: models.IsingPenalty(0.5, (2, 3)),
        told("IsingPenalty", weight=0.5, shape=[2, 3], neighbours=4),
    ),
    (
        lambda: models.HorseshoeLinear(2, 3, 0.5),
        told("HorseshoeLinear", inputs=2, outputs=3, scale=0.5, intercept_scale=1.0),
    ),
    (
        lambda: models.SiteOffsets(network(), 4, 2),
        told("SiteOffsets", network=NETWORK, sites=4, outputs=2, column=0, scale=1.0),
    ),
    (lambda: models.TotalVariationPenalty(0.5), told("TotalVariationPenalty", weight=0.5)),
    (lambda: models.GiniPenalty(0.5), told("GiniPenalty", weight=0.5)),
    (lambda: models.KLPenalty(2, 0.5), told("KLPenalty", weight=2.0, concentration=0.5)),
    (
        lambda: parts.BoostedTrees([[0, 1], [2]], 3, 7, depth=2),
        told(
            "BoostedTrees",
            columns=[[0, 1], [2]],
            outputs=3,
            trees=7,
            leaves=8,
            depth=2,
            bins=64,
        ),
    ),
    (
        lambda: models.TreePredictor([[0, 1], [2]], [0, 1], None, trees=5, rate=0.2),
        told(
            "TreePredictor",
            columns=[[0, 1], [2]],
            entries=[0, 1],
            classes=None,
            trees=5,
            leaves=15,
            depth=6,
            copies=16,
            rate=0.2,
            bins=None,
        ),
    ),
    (models.GapImputer, told("GapImputer")),
    (
        lambda: models.HiddenByNature(models.GapImputer(), [-1, 2, 2]),
        told("HiddenByNature", imputer=told("GapImputer"), markers=[-1, 2, 2]),
    ),
    (
        lambda: parts.ObservedSelector(models.RandomSelector(2), [0, 1], [-1, 2, 2]),
        told(
            "ObservedSelector",
            selector=told("RandomSelector", entries=2, rate=0.5),
            groups=[0, 1],
            markers=[-1, 2, 2],
        ),
    ),
    (
        lambda: parts.GapsFromMarkers(predictor(), [-1, 2, 2]),
        told("GapsFromMarkers", predictor=PREDICTOR, markers=[-1, 2, 2]),
    ),
    (models.HeteroscedasticLikelihood, told("HeteroscedasticLikelihood")),
    (models.CategoricalLikelihood, LABELS),
    (models.BernoulliLikelihood, told("BernoulliLikelihood")),
    (
        lambda: models.NormalLikelihood(2, learn_scale=False),
        told("NormalLikelihood", scale=2.0, learn_scale=False),
    ),
    (models.PoissonLikelihood, told("PoissonLikelihood")),
    (models.ZeroInflatedPoissonLikelihood, told("ZeroInflatedPoissonLikelihood")),
    (
        lambda: models.ZeroInflatedNegativeBinomialLikelihood(0.5),
        told("ZeroInflatedNegativeBinomialLikelihood", dispersion=0.5, learn_dispersion=True),
    ),
    (
        lambda: models.NegativeBinomialLikelihood(0.5, learn_dispersion=False),
        told("NegativeBinomialLikelihood", dispersion=0.5, learn_dispersion=False),
    ),
    (
        lambda: models.StudentTLikelihood(3, 2.0),
        told("StudentTLikelihood", degrees=3.0, scale=2.0, learn_degrees=False),
    ),
    (lambda: models.OrdinalLikelihood(4), told("OrdinalLikelihood", classes=4)),
    (
        lambda: models.CoxLikelihood("breslow"),
        told("CoxLikelihood", ties="breslow", stratified=False, baseline=None),
    ),
    (
        lambda: models.BaselineHazard([1.0, 2.0], [0.5, 1.0]),
        told(
            "BaselineHazard",
            times=[[1.0, 2.0]],
            cumulative=[[0.5, 1.0]],
            strata=[0.0],
            last=[2.0],
        ),
    ),
    (
        lambda: Predictor(network(), CategoricalLikelihood(), event_dim=3),
        told("Predictor", network=NETWORK, likelihood=LABELS, event_dim=3),
    ),
    (program, PROGRAM),
    (lambda: models.Frozen(network()), told("Frozen", module=NETWORK)),
    (
        lambda: parts.AdaptedNormalisation(network()),
        told("AdaptedNormalisation", module=NETWORK),
    ),
    (
        lambda: models.LEX(
            models.RandomSelector(2),
            ConstantImputer(),
            predictor(),
            [models.SizePenalty(0.5), models.GiniPenalty(0.25)],
            models.Grouping([0, 1]),
        ),
        told(
            "LEX",
            selector=told("RandomSelector", entries=2, rate=0.5),
            imputer=CONSTANT,
            predictor=PREDICTOR,
            penalties=[told("SizePenalty", weight=0.5), told("GiniPenalty", weight=0.25)],
            grouping=told("Grouping", groups=[0, 1], names=["x1", "x2"], event_shape=[2]),
        ),
    ),
    (
        lambda: models.LEX(models.RandomSelector(2), ConstantImputer(), predictor()),
        told(
            "LEX",
            selector=told("RandomSelector", entries=2, rate=0.5),
            imputer=CONSTANT,
            predictor=PREDICTOR,
            penalties=[],
            grouping=None,
        ),
    ),
    (policy, POLICY),
    (chooser, CHOOSER),
    (
        lambda: parts.SequentialLEX(chooser(), ConstantImputer(), predictor()),
        told(
            "SequentialLEX",
            selector=CHOOSER,
            imputer=CONSTANT,
            predictor=PREDICTOR,
            penalties=[],
            grouping=None,
        ),
    ),
]
ONE_COMPONENT = {"weights": tensor(1), "means": tensor(1, 1), "scales": tensor(1, 1)}
DECODER = told("TableDecoder", latent=1, features=2, hidden=[3])

OF_IMPUTERS = [
    (lambda: ConstantImputer(0.5), CONSTANT),
    (
        lambda: models.GaussianImputer([0.0, 1.0], 2.0),
        told("GaussianImputer", mean=tensor(2), scale=tensor()),
    ),
    (
        lambda: models.CopulaImputer.fit(ROWS, factors=1),
        told(
            "CopulaImputer",
            ordered=tensor(4, 2),
            loadings=tensor(2, 1),
            shares=tensor(0, 2),
            columns=[[0], [1]],
            levels=[0, 0],
        ),
    ),
    (
        lambda: models.ConditionalGaussianImputer.fit(ROWS),
        told("ConditionalGaussianImputer", mean=tensor(2), covariance=tensor(2, 2)),
    ),
    (
        lambda: models.MarginalImputer(ROWS.double()),
        told("MarginalImputer", reference=tensor(4, 2, dtype="float64")),
    ),
    (
        lambda: models.GaussianMixtureImputer.fit(ROWS, 2),
        told("GaussianMixtureImputer", **MIXTURE),
    ),
    (lambda: models.MixtureMeansImputer.fit(ROWS, 2), told("MixtureMeansImputer", **MIXTURE)),
    (
        lambda: models.DiscretizedLogisticMixtureImputer([1.0], [[0.5]], [[0.1]]),
        told("DiscretizedLogisticMixtureImputer", **ONE_COMPONENT),
    ),
    (
        lambda: models.DiscretizedLogisticMeansImputer([1.0], [[0.5]], [[0.1]]),
        told("DiscretizedLogisticMeansImputer", **ONE_COMPONENT),
    ),
    (
        lambda: parts.TableDecoder(1, 2, (3,)),
        told("TableDecoder", latent=1, features=2, hidden=[3]),
    ),
    (
        lambda: parts.ImageEncoder(2, 3, (4, 5)),
        told("ImageEncoder", channels=2, outputs=3, widths=[4, 5]),
    ),
    (
        lambda: parts.ImageDecoder(2, 1, 3),
        told("ImageDecoder", latent=2, channels=1, width=3),
    ),
    (
        lambda: models.VAEAC(network(4, 2), parts.TableDecoder(1, 2, (3,))),
        told(
            "VAEAC",
            prior=network_told(4, 2),
            decoder=DECODER,
            grouping=None,
            features="normal",
        ),
    ),
    (
        lambda: models.VAEACProposal(network(4, 2)),
        told("VAEACProposal", proposal=network_told(4, 2), grouping=None),
    ),
    (
        lambda: models.VAEACImputer(
            network(4, 2), parts.TableDecoder(1, 2, (3,)), network(4, 2), (2,), "pixels"
        ),
        told(
            "VAEACImputer",
            prior=network_told(4, 2),
            decoder=DECODER,
            proposal=network_told(4, 2),
            event_shape=[2],
            features="pixels",
        ),
    ),
    (
        lambda: models.MixtureDataImputer.fit(ROWS, 2),
        told("MixtureDataImputer", **MIXTURE, reference=tensor(4, 2)),
    ),
    (
        lambda: models.KMeansDataImputer.fit(ROWS, 2),
        told(
            "KMeansDataImputer",
            centres=tensor(2, 2),
            reference=tensor(4, 2),
        ),
    ),
    (
        lambda: parts.ComplementImputer(ConstantImputer(0.5)),
        told("ComplementImputer", imputer=CONSTANT),
    ),
    (models.SquaredMaskImputer, told("SquaredMaskImputer")),
]
OF_SYSTEMS = [
    (
        lambda: systems.SENN(network(2, 4), CategoricalLikelihood(), 2, 0, bias=False),
        told(
            "SENN",
            network=network_told(2, 4),
            likelihood=LABELS,
            outputs=2,
            robustness=0.0,
            bias=False,
            grouping=None,
        ),
    ),
    (
        lambda: parts.SubsetNetwork(4, 2, 0, network(), network()),
        told("SubsetNetwork", features=4, subsets=2, overlap=0.0, encoder=NETWORK, network=NETWORK),
    ),
    (
        lambda: parts.NoisyFeatures(network(), 0.5, 2),
        told("NoisyFeatures", network=NETWORK, share=0.5, scale=2.0),
    ),
    (
        lambda: parts.CombinedMask(network(), network()),
        told("CombinedMask", shared=told("Frozen", module=NETWORK), local=NETWORK),
    ),
    (
        lambda: systems.FadingPrior(1, predictor(), epochs=10),
        told(
            "FadingPrior",
            weight=1.0,
            model=told("Frozen", module=PREDICTOR),
            epochs=10,
            grouping=None,
            imputer=None,
        ),
    ),
    (
        lambda: parts.OutputFeedback(network(4, 2), predictor()),
        told(
            "OutputFeedback",
            network=network_told(4, 2),
            model=told("Frozen", module=PREDICTOR),
            join=None,
        ),
    ),
    (
        lambda: parts.FlippedTargets(program(), 2),
        told("FlippedTargets", program=PROGRAM, classes=2),
    ),
    (
        lambda: parts.GlobalImportance(3, predictor(), 0.5, 2),
        told(
            "GlobalImportance",
            entries=3,
            predictor=PREDICTOR,
            concentration=0.5,
            kl_weight=2.0,
            imputer=CONSTANT,
            grouping=None,
        ),
    ),
    (
        lambda: parts.DirichletGuide(3, point=True, kl_weight=2),
        told("DirichletGuide", entries=3, point=True, kl_weight=2.0),
    ),
    (lambda: systems.CXPlain(network()), told("CXPlain", network=NETWORK, grouping=None)),
    (
        lambda: parts.TeacherTargets(program(), predictor()),
        told("TeacherTargets", program=PROGRAM, teacher=told("Frozen", module=PREDICTOR)),
    ),
    (
        lambda: systems.FastSHAP(network(), predictor(), 2, None),
        told(
            "FastSHAP",
            network=NETWORK,
            surrogate=PREDICTOR,
            entries=2,
            classes=None,
            imputer=CONSTANT,
            grouping=None,
        ),
    ),
    (lambda: parts.UniformSizeSelector(3), told("UniformSizeSelector", entries=3)),
    (
        lambda: OnStandardisedRows(predictor(), [5.5, 0.5], [2.0, 1.0], 1, 2),
        told(
            "OnStandardisedRows",
            predictor=PREDICTOR,
            mean=[5.5, 0.5],
            scale=[2.0, 1.0],
            target_mean=1.0,
            target_scale=2.0,
        ),
    ),
    (
        lambda: OnStandardisedRows(predictor(), [5.5, 0.5], [2.0, 1.0], places=[0, 2]),
        told(
            "OnStandardisedRows",
            predictor=PREDICTOR,
            mean=[5.5, 0.5],
            scale=[2.0, 1.0],
            target_mean=0.0,
            target_scale=1.0,
            places=[0, 2],
        ),
    ),
]
SIZES = {"vocabulary_size": 9, "length": 4}
LAW = torch.tensor([[0.0, 0.0, 1.0]])
OF_TEXTS = [
    (lambda: parts.WordEmbedding(9, 4, 2), told("WordEmbedding", **SIZES, width=2)),
    (
        lambda: parts.BagOfWords(9, 4, 2, 3, (5,)),
        told("BagOfWords", **SIZES, outputs=2, embedding=3, hidden=[5]),
    ),
    (
        lambda: parts.TextCNN(9, 4, 2, 3, 4, 2, 5, 0),
        told(
            "TextCNN",
            **SIZES,
            outputs=2,
            embedding=3,
            filters=4,
            window=2,
            hidden=5,
            dropout=0.0,
        ),
    ),
    (
        lambda: parts.TextSelector(9, 4, 4, 3, 5, shown=2),
        told(
            "TextSelector",
            **SIZES,
            outputs=4,
            embedding=3,
            filters=5,
            window=3,
            shown=2,
            dropout=0.2,
        ),
    ),
    (models.PaddingImputer, told("PaddingImputer")),
    (lambda: models.UnigramImputer(LAW[0]), told("UnigramImputer", frequency=tensor(3))),
    (
        lambda: models.BigramImputer(torch.ones(3, 1), LAW),
        told("BigramImputer", to_class=tensor(3, 1), words=tensor(1, 3)),
    ),
]
DESCRIBED = [*OF_MODELS, *OF_IMPUTERS, *OF_SYSTEMS, *OF_TEXTS]
"""Parts, and what files of version 0.1.0 call them, argument by argument and in this order."""


@pytest.mark.parametrize(("build", "expected"), DESCRIBED, ids=[e["part"] for _, e in DESCRIBED])
def test_the_description_on_disk_stays_what_it_was(build, expected):
    assert json.dumps(describe(build())) == json.dumps(expected)


@pytest.mark.parametrize(("build", "expected"), DESCRIBED, ids=[e["part"] for _, e in DESCRIBED])
def test_a_description_builds_the_same_part_again(build, expected):
    parts = {**known_parts(), "OnStandardisedRows": OnStandardisedRows}
    again = rebuild(json.loads(json.dumps(expected)), parts)
    assert type(again) is type(build())
    assert again.state_dict().keys() == build().state_dict().keys()
    assert describe(again) == expected


def test_every_shipped_part_is_among_them():
    bases = {
        "CountLikelihood",
        "Imputer",
        "Likelihood",
        "MixtureImputer",
        "Penalty",
        "Selector",
        "WordImputer",
    }
    assert {p.__name__ for p in known_parts().values()} - bases <= {
        expected["part"] for _, expected in DESCRIBED
    }


class Shift(Configured, nn.Module):
    def __init__(self, amount, parts=()):
        super().__init__()
        self.amount, self.parts = amount, nn.ModuleList(parts)


def test_tensors_tuples_and_module_lists_are_lists():
    first = network()
    config = Shift(torch.tensor([1.0, 2.0]), [first]).config()
    assert config == {"amount": [1.0, 2.0], "parts": [first]}
    assert Shift((1, 2)).config() == {"amount": [1, 2], "parts": []}


def test_an_argument_that_is_not_kept_is_refused_by_class_and_name():
    class Forgetful(Configured, nn.Module):
        def __init__(self, width):
            super().__init__()
            self.halved = width / 2

    with pytest.raises(TypeError, match=r"Forgetful does not keep .* argument 'width'"):
        Forgetful(4).config()


def test_an_imputer_s_argument_that_is_not_kept_is_refused():
    class Forgetful(Imputer):
        def __init__(self, width):
            super().__init__()
            self._register("halved", width / 2)

    with pytest.raises(TypeError, match=r"Forgetful does not keep .* argument 'width'"):
        Forgetful(4).config()


def test_an_imputer_may_have_arguments_that_are_no_tensors():
    class Named(Imputer):
        def __init__(self, value, name):
            super().__init__()
            self._register("value", value)
            self.name = name

    assert Named(1.0, "noise").config() == {"value": tensor(), "name": "noise"}


def test_arguments_without_names_are_refused():
    class Nameless(Configured, nn.Module):
        def __init__(self, *widths):
            super().__init__()
            self.widths = widths

    with pytest.raises(TypeError, match=r"Nameless takes arguments without names \(\*args\)"):
        Nameless(1, 2).config()


def test_arguments_that_are_passed_on_belong_to_the_part():
    class Further(Shift):
        def __init__(self, times, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.times = times

    part = Further(2, 0.5)
    assert part.config() == {"times": 2, "amount": 0.5, "parts": []}
    assert Further(**part.config()).config() == part.config()


def test_a_subclass_of_other_arguments_has_those():
    class Twice(Shift):
        def __init__(self, half):
            super().__init__(2 * half)
            self.half = half

    assert Twice(0.5).config() == {"half": 0.5}


def test_what_a_parent_leaves_out_is_an_argument_of_a_subclass_that_keeps_it():
    class Seeded(MLP):
        def __init__(self, seed):
            super().__init__(2, 2, (3,), seed=seed)
            self.seed = seed

    assert Seeded(7).config() == {"seed": 7}


def test_a_config_written_by_hand_is_the_one_that_is_read():
    class Own(nn.Module):
        def __init__(self, amount):
            super().__init__()
            self.doubled = 2 * amount

        def config(self):
            return {"amount": self.doubled / 2}

    class Inherited(Shift):
        def config(self):
            return {"amount": 3.0}

    assert describe(Own(0.5)) == told("Own", amount=0.5)
    assert describe(Inherited(0.5)) == told("Inherited", amount=3.0)
    assert rebuild(describe(Own(0.5)), {"Own": Own}).doubled == 1.0


def test_a_part_as_a_pyro_module_has_the_same_arguments():
    described = PyroModule[MLP](2, 2, (3,)).config()
    assert described == network().config()
