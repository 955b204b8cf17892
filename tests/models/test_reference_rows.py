"""Other rows in the place of those that imputers take hidden features from."""

import pytest
import torch
from torch import nn

from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    HiddenByNature,
    KMeansDataImputer,
    MarginalImputer,
    MixtureDataImputer,
    Predictor,
)
from lexppl.models.imputers.reference_rows import taking_rows, taking_rows_from

X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
OTHERS = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
IMPUTERS = {
    "marginal": MarginalImputer,
    "mixture": lambda rows: MixtureDataImputer.fit(X, 3, reference=rows),
    "clusters": lambda rows: KMeansDataImputer.fit(X, 3, reference=rows),
}


def program(imputer):
    predictor = Predictor(MLP(3, 2, (4,), seed=0), CategoricalLikelihood())
    return LEX(BernoulliSelector(MLP(3, 3, (4,), seed=1)), imputer, predictor)


@pytest.mark.parametrize("name", IMPUTERS)
def test_other_rows_are_as_if_it_had_been_made_of_them(name):
    imputer, expected = IMPUTERS[name](X), IMPUTERS[name](OTHERS)
    found = imputer.with_reference(OTHERS)
    assert torch.equal(found.reference, OTHERS)
    keep = torch.tensor([True, False, False])
    draws = []
    for one in (found, expected):
        torch.manual_seed(0)
        draws.append(one(X, keep).expand((2000, 30)).sample())
    # Clusters may stand in another order, and have other random numbers then.
    means = [draw[..., 1:].mean(0) for draw in draws]
    error = (2.0 * draws[0][..., 1:].var(0) / 2000).sqrt()
    assert float(((means[0] - means[1]).abs() / error).max()) < 6.0
    hidden = {tuple(row) for row in draws[0][..., 1:].reshape(-1, 2).tolist()}
    assert hidden <= {tuple(row) for row in OTHERS[:, 1:].tolist()}


def test_clusters_that_no_other_row_is_in_are_left_out():
    imputer = KMeansDataImputer(torch.tensor([[0.0], [5.0]]), torch.tensor([[0.1], [5.1]]))
    found = imputer.with_reference(torch.tensor([[0.2], [0.3]]))
    assert found.centres.tolist() == [[0.0]]
    keep = torch.tensor([False])
    assert set(found(torch.tensor([[5.0]] * 50), keep).sample().flatten().tolist()) <= {
        torch.tensor(0.2).item(),
        torch.tensor(0.3).item(),
    }


def test_the_programs_are_as_they_were_afterwards():
    imputer = MarginalImputer(X)
    model = program(imputer)
    nested = nn.ModuleList([nn.Sequential(imputer), model])
    for error in (None, KeyboardInterrupt):
        try:
            with taking_rows_from(OTHERS, [nested, None, print]):
                assert torch.equal(model.imputer.reference, OTHERS)
                assert nested[0][0] is model.imputer
                if error is not None:
                    raise error
        except KeyboardInterrupt:
            pass
        assert model.imputer is imputer and nested[0][0] is imputer
        assert torch.equal(imputer.reference, X)


def test_values_that_are_missing_are_those_of_other_rows():
    """Two columns of one marker, a column that is always there and one that no row has."""
    markers = [-1, 3, 3, 3, 5, 5]
    own = torch.tensor([[9.0, 9.0, 9.0, 7.0]])
    imputer = HiddenByNature(MarginalImputer(own), markers)
    rows = torch.tensor(
        [
            [1.0, 0.0, 0.0, 1.0, 0.0, 1.0],
            [2.0, 5.0, 6.0, 0.0, 0.0, 1.0],
            [3.0, 7.0, 8.0, 0.0, 0.0, 1.0],
        ]
    )
    model = program(imputer)
    with taking_rows_from(rows, [model]):
        found = model.imputer.imputer.reference
    assert found[:, 0].tolist() == [1.0, 2.0, 3.0] and found[:, 3].tolist() == [7.0] * 3
    assert found[1:, 1:3].tolist() == [[5.0, 6.0], [7.0, 8.0]]
    assert found[0, 1:3].tolist() in ([5.0, 6.0], [7.0, 8.0])
    assert torch.equal(model.imputer.imputer.reference, own)


def test_which_imputers_take_rows():
    marginal = MarginalImputer(X)
    assert taking_rows([program(marginal), marginal, print]) == [marginal]
    assert taking_rows([program(ConstantImputer())]) == []


def test_rows_of_another_shape_are_refused():
    with (
        pytest.raises(ValueError, match=r"rows of shape \(3,\), as those of MarginalImputer"),
        taking_rows_from(OTHERS[:, :2], [program(MarginalImputer(X))]),
    ):
        pass
