"""Models from wheels that nobody here trained, explained against what is known of them; each is
skipped where its package is absent."""

import importlib
import shutil

import numpy as np
import pytest

from lexppl import ExplainerRegressor
from lexppl.models import black_box
from tests.benchmark_modules import FOLDER

pytestmark = [pytest.mark.complete, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def models(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("real_models")


def kept(models, name, rows, case="words"):
    """The mean selection of the columns that the model reads, and of the others; its calls."""
    draw = np.random.default_rng(0)
    table, model, truth = models.MODELS[name][0](case, draw, rows)
    box = black_box(model, columns=list(table), task="regression")
    said = draw.permutation(np.asarray(model(table), dtype=float))
    explainer = ExplainerRegressor("lex", model=box, random_state=0).fit(table, said)
    mean = explainer.importances(table[:200]).mean(0)
    known = np.isin(list(table), truth)
    assert box.calls.rows == len(table.drop_duplicates())
    return mean[known], mean[~known]


@pytest.mark.parametrize(
    ("package", "name", "rows", "case"),
    [
        ("vaderSentiment", "vadersentiment", 1500, "words"),
        ("py3langid", "py3langid", 2000, "words"),
        ("budoux", "budoux", 6000, "ja"),
    ],
)
def test_what_it_reads_is_kept(models, package, name, rows, case):
    pytest.importorskip(package)
    read, other = kept(models, name, rows, case)
    assert (read > 0.5).mean() >= 0.8 and (other > 0.5).mean() <= 0.1


def test_speech_is_kept_and_tones_and_noise_are_not(models):
    pytest.importorskip("silero_vad")
    if shutil.which("espeak-ng") is None:
        pytest.skip("needs espeak-ng")
    read, other = kept(models, "silero_vad", 600)
    assert (read > 0.5).all() and not (other > 0.5).any()


@pytest.mark.parametrize("case", ["pdf", "png", "zip", "elf", "gif"])
def test_the_ends_of_a_file_are_what_magika_reads(models, case):
    """Its network is called for a few files, as a row takes it 7 ms."""
    pytest.importorskip("magika")
    table, type_of, truth = models.magika(case, np.random.default_rng(0), 2)
    table[:] = 1
    table.loc[1, truth] = 0
    whole, without = type_of(table)
    assert truth == ["block 0", "block 15"] and whole > 0.4 and without < 0.01
    table.loc[1] = 0
    table.loc[1, truth] = 1
    assert type_of(table)[1] > 0.4
