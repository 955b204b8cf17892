"""A saved and reloaded explainer is the same explainer."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lexppl import ExplainerClassifier, fit, load, save
from lexppl.inference import NestedIWAE
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConditionalGaussianImputer,
    Grouping,
    Predictor,
    SizePenalty,
    TotalVariationPenalty,
)
from lexppl.saving.description import describe
from lexppl.systems import l2x
from tests.refusals import refused


def rows(dtype=torch.float32):
    x = torch.randn(120, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return x, (x[:, 0] > 0).long()


def model(dtype=torch.float32, network=None):
    x, _ = rows(dtype)
    return LEX(
        BernoulliSelector(MLP(4, 3, (8,))),
        ConditionalGaussianImputer.fit(x),
        Predictor(network or MLP(4, 2, (8,), activation="tanh"), CategoricalLikelihood()),
        [SizePenalty(0.01), TotalVariationPenalty(0.02)],
        Grouping([0, 1, 2, 2], names=["a", "b", "c"]),
    ).to(dtype)


def fitted(build, data, **options):
    return fit(build, data, objective=NestedIWAE(masks=2), epochs=2, progress=False, **options)


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reloaded_explainer_is_the_same(tmp_path, dtype):
    result = fitted(lambda: model(dtype), rows(dtype), replicates=2)
    save(result, tmp_path / "saved")
    again = load(tmp_path / "saved")
    x, y = rows(dtype)
    assert again.replicates == 2 and again.labels == (0, 1)
    for old, new in zip(result.models, again.models, strict=True):
        assert type(new) is LEX
        assert torch.equal(old.selector(x).mean, new.selector(x).mean)
        objective = NestedIWAE(masks=3)
        values = []
        for program in (old, new):
            torch.manual_seed(0)
            values.append(objective.loss(program, None, x, y))
        assert values[0] == values[1]
    assert (again.history.valid == result.history.valid).all()
    assert [p.name for p in (tmp_path / "saved").iterdir()] == ["weights.safetensors"]


def test_own_network_needs_its_model(tmp_path):
    def build():
        return model(network=nn.Sequential(nn.Linear(4, 2)))

    result = fitted(build, rows())
    save(result, tmp_path)
    refused("give model= to load", load, tmp_path)
    again = load(tmp_path, model=build)
    x, _ = rows()
    assert torch.equal(again.model.selector(x).mean, result.model.selector(x).mean)


def test_failed_saving_leaves_what_was_there(tmp_path, monkeypatch):
    result = fitted(model, rows())
    folder = tmp_path / "saved"
    save(result, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    given = Path.write_bytes

    def full_disk(path, content):
        given(path, content[:100])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    for place in (folder, tmp_path / "other" / "saved"):
        refused("no space left", save, result, place, error=OSError)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_not_an_explainer(tmp_path):
    refused(r"has no weights.safetensors", load, tmp_path, error=FileNotFoundError)


def test_numbers_of_numpy_are_saved_as_plain_ones(tmp_path):
    assert json.dumps(describe([np.int64(2), np.float32(0.5), np.True_])) == "[2, 0.5, true]"
    four, two = np.int64(4), np.int32(2)
    data = rows()
    system = l2x(four, classes=two, k=two, temperature=np.float32(0.5), hidden=(four,))
    result = fit(system, data, epochs=np.int64(2), batch_size=np.int64(60), progress=False)
    save(result, tmp_path)
    again = load(tmp_path)
    selector = again.model.selector
    assert (selector.k, selector.temperature, selector.network.hidden) == (2, 0.5, (4,))
    assert torch.equal(selector(data[0]).mean, result.model.selector(data[0]).mean)


def test_an_estimator_is_no_result(tmp_path):
    with pytest.raises(TypeError, match=r"of an estimator its result_\); it is a Explainer"):
        save(ExplainerClassifier(), tmp_path / "e")
    assert not (tmp_path / "e").exists()
