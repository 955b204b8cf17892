"""Fits and explanations from several threads are those of one."""

import os
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from sklearn.base import clone

from lexppl import ExplainerClassifier, explain, load, save
from lexppl.evaluation import predictive
from lexppl.inference import TrainingOptions, fit
from lexppl.systems import l2x, lex
from lexppl.threads import ONE_THREAD
from lexppl.workers import outcomes

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
SMALL = {"hidden": (4,), "predictor_hidden": (4,)}


def fitted(seed):
    """The weights of a fit; every other one is of another system."""
    system = lex(3, classes=2, penalty=(0.005, 0.08), **SMALL)
    if seed % 2:
        system = l2x(3, classes=2, k=1, **SMALL)
    result = fit(system, (X, Y), epochs=2, batch_size=20, seed=seed, progress=False)
    return [parameter.detach() for parameter in result.model.parameters()]


def explained(result, seed):
    """Masks at a penalty of the thread's own, and exact means at another."""
    drawn = explain(result, X, draws=5, seed=seed, penalty=0.01 + 0.001 * (seed % 7))
    exact = explain(result, X[:1], draws=0, penalty=0.02 + 0.001 * (seed % 5))
    of_masks = torch.from_numpy(drawn["predictions"]["mask"].values.astype("f4"))
    return [of_masks, torch.from_numpy(exact["sample_stats"]["selection_probability"].values)]


@pytest.mark.parametrize("runs", [12, pytest.param(200, marks=pytest.mark.complete)])
def test_threads_give_equal_results(runs):
    system = lex(3, classes=2, penalty=(0.005, 0.08), **SMALL)
    result = fit(system, (X, Y), epochs=2, batch_size=20, progress=False)
    works = [
        (lambda s=s: fitted(s)) if s % 3 == 0 else (lambda s=s: explained(result, s))
        for s in range(runs)
    ]
    alone = [work() for work in works]
    state = torch.get_rng_state()
    with ThreadPoolExecutor(8) as pool:
        together = [future.result() for future in [pool.submit(work) for work in works]]
    for a, b in zip(alone, together, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(a, b, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert result.model.selector.penalty == pytest.approx(0.02)


def test_a_thread_waits_for_a_fit():
    """Inside a fit's callback an explanation of another thread does not begin."""
    system, seen = lex(3, classes=2, penalty=(0.005, 0.08), **SMALL), []
    result = fit(system, (X, Y), epochs=1, progress=False)
    other = threading.Thread(target=lambda: seen.append(explain(result, X[:1], draws=0)))

    def callback(epoch):
        if epoch.number == 0:
            other.start()
        other.join(0.05)
        assert not seen

    fit(system, (X, Y), epochs=2, progress=False, training=TrainingOptions(callbacks=[callback]))
    other.join()
    assert len(seen) == 1
    with ONE_THREAD:
        pass


def exit_code_of_fork(work):
    """Exit code of a forked process that calls `work`: 7 where it raises what a process refuses
    that was forked during another thread's call; minus a signal's number where that ended it."""
    # Of forks beside threads
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)  # An end for a process that waits for a lock
            work()
            code = 0
        except RuntimeError as error:
            code = 7 if "forked while another thread" in str(error) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_forked_during_a_fit_of_another_thread_refuses_to_go_on():
    system = lex(3, classes=2, penalty=(0.005, 0.08), **SMALL)
    result = fit(system, (X, Y), epochs=1, progress=False)
    expected = explained(result, 0)
    is_inside, may_go_on, codes = threading.Event(), threading.Event(), []

    def explain_again():
        assert all(map(torch.equal, explained(result, 0), expected))

    def callback(epoch):
        is_inside.set()
        may_go_on.wait()
        codes.append(exit_code_of_fork(explain_again))  # Of the thread that fits

    options = {"epochs": 1, "progress": False, "training": TrainingOptions(callbacks=[callback])}
    thread = threading.Thread(target=lambda: fit(system, (X, Y), **options))
    thread.start()
    is_inside.wait()
    codes += [
        exit_code_of_fork(explain_again),
        exit_code_of_fork(lambda: fit(system, (X, Y), epochs=1, progress=False)),
        # Of such a process itself
        exit_code_of_fork(lambda: os._exit(exit_code_of_fork(explain_again))),
    ]
    may_go_on.set()
    thread.join()
    assert [*codes, exit_code_of_fork(explain_again)] == [7, 7, 7, 0, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_forked_during_a_task_of_another_thread_refuses_to_go_on():
    is_inside, may_go_on = threading.Event(), threading.Event()

    def raise_of_a_task():
        (outcome,) = outcomes(int, [()])
        if outcome.error is not None:
            raise outcome.error

    def task():
        is_inside.set()
        may_go_on.wait()

    thread = threading.Thread(target=lambda: list(outcomes(task, [()])))
    thread.start()
    is_inside.wait()
    code = exit_code_of_fork(raise_of_a_task)
    may_go_on.set()
    thread.join()
    assert code == 7


@pytest.fixture(scope="module")
def entries(tmp_path_factory):
    """Calls of what an explainer has for its users, by name."""
    folder = tmp_path_factory.mktemp("entries")
    system = lex(3, classes=2, penalty=(0.005, 0.08), **SMALL)
    with warnings.catch_warnings(action="ignore"):
        result = fit(system, (X, Y), epochs=1, progress=False)
        estimator = ExplainerClassifier(epochs=1, replicates=1).fit(X.numpy(), Y.numpy())
    save(result, folder / "saved")
    one = {"epochs": 1, "progress": False}
    return {
        "fit": lambda: fit(system, (X, Y), **one),
        "explain": lambda: explain(result, X[:3], draws=2),
        "explain exactly": lambda: explain(result, X[:3], draws=0),
        "at": lambda: result.at(0.02),
        "predictive": lambda: predictive(result, X[:3]),
        "predict": lambda: estimator.predict_proba(X.numpy()),
        "importances": lambda: estimator.importances(X.numpy()),
        "explain of an estimator": lambda: estimator.explain(X.numpy()[:3]),
        "fit of an estimator": lambda: clone(estimator).fit(X.numpy(), Y.numpy()),
        "save": lambda: save(result, folder / "again"),
        "load": lambda: load(folder / "saved"),
    }


NAMES = (
    *("fit", "explain", "explain exactly", "at", "predictive", "predict", "importances"),
    *("explain of an estimator", "fit of an estimator", "save", "load"),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_an_entry_waits_for_the_call_of_another_thread(entries, name):
    """What it copies is half changed meanwhile."""
    may_begin, ended = threading.Event(), []

    def call():
        may_begin.set()
        entries[name]()
        ended.append(True)

    thread = threading.Thread(target=call)
    with ONE_THREAD:
        thread.start()
        may_begin.wait()
        thread.join(0.3)
        assert not ended
    thread.join()
    assert ended


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("name", NAMES)
def test_an_entry_refuses_a_process_that_was_forked_during_the_call_of_another_thread(
    entries, name
):
    is_inside, may_go_on = threading.Event(), threading.Event()

    def hold():
        with ONE_THREAD:
            is_inside.set()
            may_go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_inside.wait()
    code = exit_code_of_fork(entries[name])
    may_go_on.set()
    thread.join()
    assert code == 7
    assert exit_code_of_fork(entries[name]) == 0
