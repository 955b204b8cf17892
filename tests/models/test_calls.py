"""What a model is sent: counted by the model itself, in one process and after a kill."""

import copy
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.compare.importances import library
from lexppl.models import black_box
from lexppl.models.calls import Answers, shap_rows, table_keys
from tests.processes import exit_code_of, killed_after
from tests.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore")

ARRAY = np.random.default_rng(0).normal(size=(100, 3))
ROWS = torch.from_numpy(ARRAY)
LABELS = (ARRAY[:, 0] > 0).astype(int)
FRAME = pd.DataFrame(ARRAY, columns=["a", "b", "c"])
QUICK = {"epochs": 2, "random_state": 0, "k": 1}


class Counting:
    """A model that counts the rows that it gets."""

    def __init__(self):
        self.seen = []

    def __call__(self, rows):
        self.seen += [row.tobytes() for row in np.asarray(rows)]
        return 1 / (1 + np.exp(-np.asarray(rows)[:, 0]))


def test_rows_of_the_same_content_are_sent_once():
    model = Counting()
    box = black_box(model, batch_size=30)
    twice = torch.cat([ROWS, ROWS.flip(0)])
    given = box.targets(twice)
    assert len(model.seen) == len(set(model.seen)) == 100
    torch.testing.assert_close(given[:, 1], twice[:, 0].sigmoid())
    assert (box.calls.rows, box.calls.calls, box.calls.known) == (100, 4, 100)
    assert torch.equal(box.targets(ROWS), given[:100]) and len(model.seen) == 100
    assert box.calls.seconds > 0


def test_threads_wait_for_each_other():
    busy, model = threading.Lock(), Counting()

    def alone(rows):
        assert busy.acquire(blocking=False)
        time.sleep(0.001)
        busy.release()
        return model(rows)

    box = black_box(alone, batch_size=10)
    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(box.targets, [ROWS] * 8)
    assert all(torch.equal(first, other) for other in others)
    assert len(model.seen) == box.calls.rows == len(ROWS)


def test_max_calls_leave_rows_out_and_never_buy_more():
    model = Counting()
    box = black_box(model, max_calls=40, batch_size=7)
    refused(r"max_calls=40 allows 40 more rows .* and 100 have no", box.targets, ROWS)
    places = box.affordable(ROWS)
    assert len(places) == 40 and places.max() > 60 and not model.seen
    torch.testing.assert_close(box.targets(ROWS[places])[:, 1], ROWS[places, 0].sigmoid())
    assert len(model.seen) == 40 and box.calls.left_out == 60
    assert torch.equal(box.affordable(ROWS, seed=1), places)
    refused("max_calls=40 is used up", box.affordable, ROWS + 1)
    assert "60 rows were left out by max_calls" in box.calls.summary(3)


@pytest.mark.parametrize("batch", [1, 10, 4096])
def test_a_model_that_raises_on_row_17_keeps_what_came_before(batch):
    def fails(rows):
        if (rows[:, 0] == ARRAY[17, 0]).any():
            raise ZeroDivisionError("no such\npatient")
        return model(rows)

    model = Counting()
    box = black_box(fails, batch_size=batch)
    refused(r"^fails fails on row 17: ZeroDivisionError: no such pat", box.targets, ROWS)
    assert len(model.seen) == len(set(model.seen)) == 17
    before = box.calls.rows
    box.targets(ROWS[:17])
    assert box.calls.rows == before
    limited = black_box(fails, max_calls=100)
    refused("fails on one of rows 0 to 49, and max_calls=100 allows", limited.targets, ROWS)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.nan, r"finite values; 2 of its 60 values are NaN or infinite; row 17 is the first"),
        (1.5, r"in \[0, 1\]; it gave -0.5 to 1.5; row 17 is the first"),
    ],
)
def test_good_rows_beside_a_bad_one_are_kept(wrong, words):
    model = Counting()
    box = black_box(
        lambda rows: np.where(rows[:, 0] == ARRAY[17, 0], wrong, model(rows)), batch_size=30
    )
    refused(words, box.targets, ROWS)
    others = np.delete(np.arange(30), 17)
    box.targets(ROWS[others])
    assert len(model.seen) == 30


class Paid:
    """A model that writes down the rows that it gets."""

    def __init__(self, log):
        self.log = log

    def predict_proba(self, rows):
        with self.log.open("a") as file:
            file.writelines(row.tobytes().hex() + "\n" for row in np.asarray(rows))
        p = 1 / (1 + np.exp(-2.0 * np.asarray(rows)[:, 0]))
        return np.stack([1 - p, p], 1)


def fit_to_paid(folder, most=1000):
    """Rows that are sent and that are known in a fit to a model whose process dies after `most`
    calls."""
    box = black_box(Paid(folder / "log"), batch_size=5, cache=folder / "cache")
    box.model.predict_proba = killed_after(most, box.model.predict_proba)
    ExplainerClassifier("l2x", model=box, **QUICK).fit(FRAME[:80], LABELS[:80])
    return box.calls.rows, box.calls.known


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no SIGKILL")
def test_a_killed_run_that_runs_again_pays_for_no_row_twice(tmp_path):
    """Of 16 calls it dies in the ninth; a write that was cut short is there too."""
    log, cache = tmp_path / "log", tmp_path / "cache"
    assert exit_code_of(fit_to_paid, tmp_path, 8) == -signal.SIGKILL
    assert len(log.read_text().split()) == 40
    (file,) = cache.glob("*.rows")
    torn = cache / file.name.replace(file.stem.split("-")[2], "0123456789ab")
    torn.write_bytes(file.read_bytes()[:50])
    assert fit_to_paid(tmp_path) == (40, 40)
    paid = Counter(log.read_text().split())
    assert len(paid) == 80 and set(paid.values()) == {1}


def test_a_cache_is_of_one_model_and_of_what_is_asked(tmp_path):
    first = LogisticRegression().fit(ARRAY, LABELS)
    box = black_box(first, cache=tmp_path)
    assert torch.equal(box.targets(ROWS), black_box(first, cache=tmp_path).targets(ROWS))
    other = LogisticRegression(C=0.01).fit(ARRAY, LABELS)
    np.testing.assert_allclose(
        black_box(other, cache=tmp_path).targets(ROWS), other.predict_proba(ARRAY)
    )
    known = black_box(first, cache=tmp_path)
    known.targets(ROWS)
    assert known.calls.rows == 0 and known.calls.known == 100
    words = LogisticRegression().fit(ARRAY, np.array(["no", "yes"])[LABELS])
    said = black_box(words, classes=["no", "yes"], cache=tmp_path).targets(ROWS)
    turned = black_box(words, classes=["yes", "no"], cache=tmp_path).targets(ROWS)
    assert torch.equal(turned, said.flip(1))
    with pytest.raises(ValueError, match=r"keeps answers by what a model holds.*cannot be hashed"):
        black_box(Holding(), cache=tmp_path)


class Holding:
    """Of an open socket, say."""

    def __init__(self):
        self.held = (one for one in "ab")

    def __call__(self, rows):
        return rows[:, 0]


def test_a_record_that_was_damaged_is_passed_over(tmp_path):
    Answers(tmp_path, "m").add([b"a" * 16, b"b" * 16], np.array([[0.25, 0.75], [0.5, 0.5]]))
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    assert list(Answers(tmp_path, "m").held) == [b"b" * 16]
    assert not Answers(tmp_path, "another").held


def test_cells_of_a_table_are_its_content():
    table = FRAME.assign(ward=["x", "y"] * 50, day=pd.Timestamp("2026-01-02"))
    keys = table_keys(table, "")
    assert len(set(keys)) == 100 and table_keys(table.iloc[:5], "") == keys[:5]
    assert table_keys(table.assign(ward="x"), "")[0] == keys[0]
    assert table_keys(table.assign(ward="x"), "")[1] != keys[1]
    assert not set(keys) & set(table_keys(table, "asked otherwise"))
    assert not set(keys) & set(table_keys(table.rename(columns={"a": "A"}), ""))


@pytest.mark.parametrize("kind", [ExplainerClassifier, ExplainerRegressor])
def test_an_estimator_explains_what_it_has_bought(kind):
    model = Counting()
    task = {} if kind is ExplainerClassifier else {"task": "regression"}
    box = black_box(model, max_calls=60, batch_size=16, **task)
    y = LABELS if kind is ExplainerClassifier else ARRAY[:, 0]
    explainer = clone(kind("l2x", model=box, **QUICK)).fit(FRAME, y, np.ones(100))
    assert len(model.seen) == 60 and explainer.calls_.left_out == 40
    assert explainer.importances(FRAME).shape == (100, 3)
    assert kind("l2x", **QUICK).fit(FRAME, y).calls_ is None
    again = kind("l2x", model=box, **QUICK).fit(FRAME, y)
    assert len(model.seen) == 60
    np.testing.assert_array_equal(again.importances(FRAME), explainer.importances(FRAME))


def test_a_black_box_is_copied_as_itself_and_pickled_by_its_model():
    box = black_box(LogisticRegression().fit(ARRAY, LABELS), max_calls=200)
    assert copy.deepcopy(box) is box
    again = pickle.loads(pickle.dumps(box))
    assert torch.equal(again.targets(ROWS), box.targets(ROWS)) and again.max_calls == 200


@pytest.mark.complete
def test_shap_sends_as_many_rows_as_is_printed():
    """Of its permutation explainer, with ten permutations of features that all vary."""
    shap = library("shap")
    model, background = Counting(), ARRAY[:20]
    explainer = shap.explainers.Permutation(model, shap.maskers.Independent(background, 20))
    model.seen.clear()
    explainer(ARRAY[50:54], max_evals=10 * (2 * 3 + 1), silent=True)
    # It has the row and the background beside its masks.
    assert len(model.seen) == pytest.approx(shap_rows(4, 3, 20), rel=0.05)


@pytest.mark.skipif(os.name != "posix", reason="file sizes are limited as POSIX does")
def test_a_full_disk_names_the_file_of_answers_and_loses_no_later_ones(tmp_path):
    answers = Answers(tmp_path, "model")
    keys, outputs = [bytes([n]) * 16 for n in range(3)], np.arange(6.0).reshape(3, 2)
    answers.add(keys[:1], outputs[:1])
    (file,) = tmp_path.iterdir()
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 5, before[1]))
        with pytest.raises(OSError, match="cannot be written") as full:
            answers.add(keys[1:2], outputs[1:2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert full.value.filename == str(file)
    answers.add(keys[2:], outputs[2:])
    assert set(Answers(tmp_path, "model").held) == {keys[0], keys[2]}
