"""What a power cut leaves, at any moment and of any file system that drops what was not waited for:
the earlier output or the new one, and runs that go on."""

import os
import random
from contextlib import suppress

import numpy as np
import pytest
import torch
import xarray as xr

from lexppl import load, save
from lexppl.arviz_compatibility import group_of, posterior_of
from lexppl.explanation import explain_to_zarr, load_posterior, open_posterior, save_posterior
from lexppl.inference import Checkpoints, fit
from lexppl.models.calls import Answers
from lexppl.sealed_files import output_file, output_folder
from lexppl.systems import lex
from tests.explanation.many_rows.fitted import assert_same, fitted, rows
from tests.power_loss import Disk, written

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders are flushed on POSIX alone")


def outcomes(states, tmp_path, read):
    """What is read from each state; the last is of the end."""
    return [read(written(state, tmp_path / f"state {n}")) for n, state in enumerate(states)]


def test_an_explainer_is_the_old_or_the_new_one(tmp_path):
    root = tmp_path / "disk"
    first, second = fitted(), fitted(seed=1)
    save(first, root / "saved")
    states = Disk(root).during(lambda: save(second, root / "saved"))
    x = rows()[0][:5]
    means = [result.model.selector(x).mean for result in (first, second)]

    def read(folder):
        found = load(folder / "saved").model.selector(x).mean
        return [torch.equal(found, mean) for mean in means].index(True)

    found = outcomes(states, tmp_path, read)
    assert {*found} == {0, 1} and found[-1] == 1


def test_a_new_explainer_is_there_when_save_has_returned(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    states = Disk(root).during(lambda: save(fitted(), root / "deep" / "saved"))
    load(written(states[-1], tmp_path / "end") / "deep" / "saved")


def posterior(value):
    return posterior_of({"observed_data": xr.Dataset({"y": ("row", [value])})}, {})


def test_a_posterior_file_is_the_old_or_the_new_one(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    save_posterior(posterior(0), root / "p.nc")
    states = Disk(root).during(lambda: save_posterior(posterior(1), root / "p.nc"))

    def read(folder):
        return int(group_of(load_posterior(folder / "p.nc"), "observed_data")["y"][0])

    found = outcomes(states, tmp_path, read)
    assert {*found} == {0, 1} and found[-1] == 1


def test_an_output_is_the_old_or_the_new_one_and_the_next_run_cleans_up(tmp_path):
    root = tmp_path / "disk"

    def put(root, text):
        with output_folder(root / "out", True, ["a", "below"]) as aside:
            (aside / "below").mkdir()
            for name in ("a", "below/b"):
                (aside / name).write_text(text)
        with output_file(root / "scores.json", True) as aside:
            aside.write_text(text)

    root.mkdir()
    put(root, "old")
    states = Disk(root).during(lambda: put(root, "new"))

    def read(folder):
        # What is begun and refused puts back what a cut left between two renames.
        with pytest.raises(FileExistsError, match="not empty"), output_folder(folder / "out"):
            raise AssertionError("work began")
        a, b, c = (folder / name for name in ("out/a", "out/below/b", "scores.json"))
        assert a.read_text() == b.read_text()
        found = a.read_text(), c.read_text()
        put(folder, "newer")
        names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        # Left alone is what had the name that a run takes before it holds a lock.
        named = {name for name in names if ".new" not in name}
        assert named == {"out", "out/a", "out/below", "out/below/b", "scores.json"}
        return found

    found = outcomes(states, tmp_path, read)
    assert {*found} == {("old", "old"), ("new", "old"), ("new", "new")}
    assert found[-1] == ("new", "new")


X, Y = (column[:60] for column in rows())
FIT = {"epochs": 3, "batch_size": 20, "progress": False}


def bits(result):
    return [parameter.detach() for parameter in result.model.parameters()]


def test_a_checkpoint_is_of_an_epoch_and_goes_on_to_the_same_bits(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    system = lex(4, classes=2, penalty=0.02, hidden=(4,), predictor_hidden=(4,))
    whole = bits(fit(system, (X, Y), **FIT))

    def kept(folder):
        return fit(system, (X, Y), checkpoint=Checkpoints(folder / "state", 0), **FIT)

    states = Disk(root).during(lambda: kept(root))
    chosen = random.Random(0).sample(states[:-1], 8)
    for found in outcomes([*chosen, states[-1]], tmp_path, lambda folder: bits(kept(folder))):
        assert all(map(torch.equal, found, whole))


def test_answers_of_a_black_box_are_whole_and_stay(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    keys, outputs = [bytes([n]) * 16 for n in range(4)], np.arange(8.0).reshape(4, 2)

    def add():
        answers = Answers(root / "cache", "model")
        for n in range(0, 4, 2):
            answers.add(keys[n : n + 2], outputs[n : n + 2])

    states = Disk(root).during(add)
    found = outcomes(states, tmp_path, lambda folder: Answers(folder / "cache", "model").held)
    assert {len(held) for held in found} == {0, 2, 4} and len(found[-1]) == 4
    for held in found:
        assert all((outputs[keys.index(key)] == one).all() for key, one in held.items())


@pytest.mark.filterwarnings("error:Object at")
@pytest.mark.complete
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_store_goes_on_to_the_same_numbers_and_never_has_another_run_s(tmp_path, seed, overwrite):
    pytest.importorskip("zarr", reason="the extra 'dask' is not installed")
    root = tmp_path / "disk"
    root.mkdir()
    x = rows()[0][:1500]

    def explained(folder, seed, **options):
        folder.mkdir(exist_ok=True)
        given = {"draws": 2, "rows_per_chunk": 1000, "progress": False, "seed": seed, **options}
        return open_posterior(explain_to_zarr(fitted(), x, folder / "p.zarr", **given))

    if overwrite:
        explained(root, 1)
    states = Disk(root).during(lambda: explained(root, 2, overwrite=overwrite))
    whole = [explained(tmp_path / f"whole {seed}", seed) for seed in (1, 2)]
    for n, state in enumerate(random.Random(seed).sample(states, 4)):
        folder, other = (written(state, tmp_path / f"{n} {name}") for name in ("same", "other"))
        # Another run is refused, or begins anew: it has none of the first one's chunks.
        with suppress(ValueError, FileExistsError):
            assert_same(explained(other, 1), whole[0])
        assert_same(explained(folder, 2, overwrite=overwrite), whole[1])
