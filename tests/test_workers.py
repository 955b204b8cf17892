"""Tasks give the same wherever they run: here, in processes, on a cluster."""

import time
from threading import Thread

import pytest
import torch

from lexppl.explanation import explain_to_zarr, open_posterior
from lexppl.inference.contexts import seeded
from lexppl.workers import fixed_threads, outcomes
from tests.explanation.many_rows.fitted import assert_same, fitted, rows

distributed = pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
pytest.importorskip("zarr", reason="the extra 'dask' is not installed")


def drawn(seed):
    """A sum of draws that another thread's draws would spoil."""
    with seeded(seed):
        total = torch.zeros(())
        for _ in range(20):
            total = total + torch.rand(())
            time.sleep(0.0005)
    return float(total)


def failing(number):
    if number == 2:
        raise LookupError("two")
    return number, torch.get_num_threads()


def test_outcomes_are_of_their_tasks_and_failures_are_outcomes_too():
    with fixed_threads(2):
        found = {o.number: o for o in outcomes(failing, ((n,) for n in range(4)))}
        assert torch.get_num_threads() == 2
    assert [found[n].value for n in (0, 1, 3)] == [(0, 1), (1, 1), (3, 1)]
    assert isinstance(found[2].error, LookupError)


def test_an_error_that_cannot_be_sent_is_told_in_words():
    class OwnError(Exception):
        pass

    def task(number):
        raise OwnError("spoilt")

    (outcome,) = outcomes(task, [(1,)])
    assert str(outcome.error) == "OwnError: spoilt"


def test_threads_of_one_process_take_turns():
    expected = [drawn(seed) for seed in range(4)]
    found = {}

    def run(seed):
        (outcome,) = outcomes(drawn, [(seed,)])
        found[seed] = outcome.value

    threads = [Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(4)] == expected


def test_arguments_are_taken_as_they_are_needed():
    taken = []

    def arguments():
        for number in range(100):
            taken.append(number)
            yield (number,)

    ended = outcomes(failing, arguments())
    next(ended)
    assert taken == [0]
    ended.close()


def test_processes_here_give_the_numbers_of_one(tmp_path):
    how = {"draws": 2, "rows_per_chunk": 1000, "progress": False}
    here, there = (
        explain_to_zarr(fitted(), rows()[0], tmp_path / str(jobs), jobs=jobs, **how)
        for jobs in (1, 2)
    )
    assert_same(open_posterior(here), open_posterior(there))


@pytest.mark.complete
@pytest.mark.parametrize("processes", [False, True])
def test_a_cluster_gives_the_numbers_of_one_process(tmp_path, processes):
    # Workers of one process share its random state, in two threads each.
    size = {"n_workers": 2, "threads_per_worker": 1 if processes else 2}
    x = rows()[0]
    here = explain_to_zarr(fitted(), x, tmp_path / "here", draws=2, progress=False)
    with (
        distributed.LocalCluster(**size, processes=processes, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        options = {"draws": 2, "rows_per_chunk": 1000, "client": client, "progress": False}
        there = explain_to_zarr(fitted(), x.split(900), tmp_path / "there", **options)
        with pytest.raises(ValueError, match="x must have 4 features"):
            explain_to_zarr(fitted(), x[:, :3], tmp_path / "none", **options)
        with pytest.raises(ValueError, match="a client has workers of its own"):
            next(outcomes(failing, [], client=client, jobs=2))
    # A process of its own may have other kernels for its products than this one.
    assert_same(open_posterior(here), open_posterior(there), 1e-6 if processes else 0.0)
