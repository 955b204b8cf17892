"""Outputs are there in full or not at all."""

import errno
import os
import random
import signal
import time
from collections import namedtuple
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from lexppl.models.calls import Answers
from lexppl.sealed_files import (
    clear,
    held,
    is_full_disk,
    output_file,
    output_folder,
    refuse_without_space,
)
from tests.processes import exit_code_of


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_folder_takes_its_place_at_the_end(tmp_path):
    target = tmp_path / "deep" / "results"
    with output_folder(target) as aside:
        (aside / "a.txt").write_text("a")
        assert not target.exists()
    assert left(tmp_path) == ["deep", "deep/results", "deep/results/a.txt"]
    assert target.stat().st_mode & 0o777 == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_a_failure(tmp_path, error):
    with pytest.raises(error), output_folder(tmp_path / "deep" / "results") as aside:
        (aside / "a.txt").write_text("a")
        raise error
    assert left(tmp_path) == []


@pytest.fixture
def earlier(tmp_path):
    """A folder of an earlier run."""
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "a.txt").write_text("earlier")
    return folder


def test_failure_leaves_the_earlier_folder(tmp_path, earlier):
    with pytest.raises(ValueError, match="no"), output_folder(earlier, True, ["a.txt"]) as aside:
        (aside / "a.txt").write_text("new")
        raise ValueError("no")
    assert (earlier / "a.txt").read_text() == "earlier"
    assert left(tmp_path) == ["results", "results/a.txt"]


def test_empty_folder_is_taken_and_full_one_refused(tmp_path, earlier):
    (tmp_path / "empty").mkdir()
    with output_folder(tmp_path / "empty") as aside:
        (aside / "a.txt").write_text("a")
    with pytest.raises(FileExistsError, match="not empty; give --over"), output_folder(earlier):
        pass
    with output_folder(earlier, True, ["a.txt"]) as aside:
        (aside / "b.txt").write_text("b")
    assert left(earlier) == ["b.txt"] and left(tmp_path / "empty") == ["a.txt"]


def test_what_others_wrote_is_never_deleted(tmp_path, earlier):
    words = r"holds 'a.txt', which this program did not"
    with pytest.raises(FileExistsError, match=words), output_folder(earlier, True, ["b.txt"]):
        pass
    target = tmp_path / "new"
    with pytest.raises(FileExistsError), output_folder(target) as aside:
        (aside / "a.txt").write_text("a")
        target.mkdir()
        (target / "thesis.txt").write_text("years of work")
    assert left(tmp_path) == ["new", "new/thesis.txt", "results", "results/a.txt"]


def killed_in(target):
    """Begin an output and end as by kill -9: nothing is cleaned up."""
    with output_folder(target, True, ["a.txt"]) as aside:
        (aside / "a.txt").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def killed_in_file(target):
    with output_file(target, True) as aside:
        aside.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def killed_between_renames(target):
    rename = Path.rename

    def renamed(self, other):
        rename(self, other)
        if self == target:
            os.kill(os.getpid(), signal.SIGKILL)

    Path.rename = renamed
    with output_folder(target, True, ["a.txt"]) as aside:
        (aside / "a.txt").write_text("new")


@pytest.mark.skipif(os.name != "posix", reason="no such locks")
def test_what_a_killed_run_left_goes_with_the_next_of_its_target(tmp_path, earlier):
    for _ in range(2):
        assert exit_code_of(killed_in, earlier) == -signal.SIGKILL
    assert exit_code_of(killed_in, tmp_path / "results-2") == -signal.SIGKILL
    assert len(list(tmp_path.glob(".*.partial"))) == 2  # The second removed what the first left.
    with output_folder(earlier, True, ["a.txt"]) as aside:
        (aside / "a.txt").write_text("new")
        # A run that goes on has its folder to itself.
        with output_folder(earlier, True, ["a.txt"]) as other:
            (other / "a.txt").write_text("newer")
        assert (aside / "a.txt").read_text() == "new"
    (left_of_other,) = tmp_path.glob(".*")
    assert left_of_other.name.startswith(".results-2-")
    assert exit_code_of(killed_in_file, tmp_path / "scores[1].json") == -signal.SIGKILL
    with output_file(tmp_path / "scores[1].json") as aside:
        aside.write_text("{}")
    assert left(tmp_path)[1:] == [
        f"{left_of_other.name}/a.txt",
        *("results", "results/a.txt", "scores[1].json"),
    ]


@pytest.mark.skipif(os.name != "posix", reason="no such locks")
def test_what_was_there_comes_back_after_a_kill_between_two_renames(tmp_path, earlier):
    assert exit_code_of(killed_between_renames, earlier) == -signal.SIGKILL
    assert not earlier.exists()
    with pytest.raises(FileExistsError, match="not empty"), output_folder(earlier):
        raise AssertionError("work began")
    assert left(tmp_path) == ["results", "results/a.txt"]
    assert (earlier / "a.txt").read_text() == "earlier"


def test_a_full_disk_names_the_output(tmp_path):
    for output in (output_file, output_folder):
        with pytest.raises(OSError, match="cannot be written") as caught, output(tmp_path / "out"):
            raise OSError(errno.ENOSPC, "No space left on device")
        assert is_full_disk(caught.value)
        assert caught.value.filename == str(tmp_path / "out")
        # Another error is the caller's.
        with pytest.raises(ConnectionError) as lost, output(tmp_path / "out"):
            raise ConnectionError(errno.ECONNRESET, "reset")
        assert lost.value.filename is None


def test_a_place_below_a_file_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"), output_folder(tmp_path / "file" / "results"):
        raise AssertionError("work began")
    with pytest.raises(FileExistsError, match="is a file"), output_folder(tmp_path / "file"):
        raise AssertionError("work began")


def test_file_takes_its_place_at_the_end(tmp_path):
    target = tmp_path / "deep" / "scores.json"
    with output_file(target) as aside:
        aside.write_text("{}")
        assert not target.exists()
    assert target.read_text() == "{}"
    with pytest.raises(FileExistsError, match="give --overwrite"), output_file(target):
        pass
    with pytest.raises(FileExistsError, match="is a folder"), output_file(tmp_path):
        pass
    with pytest.raises(KeyboardInterrupt), output_file(target, overwrite=True) as aside:
        aside.write_text("half")
        raise KeyboardInterrupt
    assert target.read_text() == "{}"
    assert left(tmp_path) == ["deep", "deep/scores.json"]


def test_room_is_asked_for_where_the_output_shall_be(tmp_path, monkeypatch):
    places = []

    def usage(place):
        places.append(place)
        return namedtuple("Usage", "free")(1000)

    monkeypatch.setattr("lexppl.sealed_files.shutil.disk_usage", usage)
    refuse_without_space(tmp_path / "deep" / "results", 1000)
    with pytest.raises(OSError, match=r"at least 2\.0 MB are needed, and there are 0\.0 MB") as one:
        refuse_without_space(tmp_path, 2_000_000)
    assert places == [tmp_path, tmp_path]
    assert is_full_disk(one.value)
    assert not is_full_disk(PermissionError(13, "Permission denied"))
    assert not is_full_disk(ValueError())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_when_it_has_the_file():
    with pytest.raises(OSError, match="No space left") as one, Path("/dev/full").open("wb") as file:
        file.write(b"content")
    assert is_full_disk(one.value)


def test_of_two_runs_of_one_target_the_second_is_refused_at_its_end(tmp_path):
    for output, target in ((output_folder, tmp_path / "out"), (output_file, tmp_path / "s.json")):
        with pytest.raises(FileExistsError, match="give --overwrite"), output(target) as first:
            with output(target) as second:
                place = second / "a" if second.is_dir() else second
                place.write_text("second")
            (first / "a" if first.is_dir() else first).write_text("first")
    assert left(tmp_path) == ["out", "out/a", "s.json"]
    assert (tmp_path / "out/a").read_text() == (tmp_path / "s.json").read_text() == "second"


@pytest.mark.skipif(os.name != "posix", reason="no such locks")
def test_what_a_run_replaces_at_this_moment_is_not_put_back_by_another(tmp_path, earlier):
    between = tmp_path / ".results-0123456789ab.earlier"
    earlier.rename(between)
    with held(tmp_path):
        clear(earlier)
        assert between.exists() and not earlier.exists()
    clear(earlier)
    assert left(tmp_path) == ["results", "results/a.txt"]


@pytest.mark.skipif(os.name != "posix", reason="no such locks")
def test_what_another_holds_is_refused_in_a_line(tmp_path):
    words = "writes there: wait for it"
    with held(tmp_path), pytest.raises(BlockingIOError, match=words) as one, held(tmp_path):
        raise AssertionError("held twice")
    assert one.value.filename == str(tmp_path)
    with held(tmp_path):
        pass


RUNS = 30


@pytest.mark.skipif(os.name != "posix", reason="no such locks")
@pytest.mark.parametrize("overwrite", [False, True])
def test_two_runs_at_random_moments_end_or_are_refused_and_do_not_mix(
    tmp_path, monkeypatch, overwrite
):
    for name in ("open", "rename", "replace", "fsync", "mkdir", "rmdir", "unlink"):
        monkeypatch.setattr(os, name, late(getattr(os, name)))
    for run in range(RUNS):
        folder, file, cache = (tmp_path / f"{run}" / name for name in ("out", "s.json", "cache"))
        met = []

        def write(name, folder=folder, file=file, cache=cache, met=met):
            try:
                with output_folder(folder, overwrite, ["a", "b"]) as aside:
                    for part in ("a", "b"):
                        (aside / part).write_text(name)
                with output_file(file, overwrite) as aside:
                    aside.write_text(name)
            except FileExistsError as error:
                assert "give --overwrite" in str(error)
            except BaseException as error:
                met.append(error)
                raise
            answers = Answers(cache, "model")
            answers.add([name.encode() * 16], np.array([[float(name)]]))

        threads = [Thread(target=write, args=(name,)) for name in "12"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert met == []
        names = sorted(path.name for path in folder.parent.iterdir())
        assert set(names) <= {"out", "s.json", "cache"} and names.count("out") == 1
        assert (folder / "a").read_text() == (folder / "b").read_text()
        found = Answers(cache, "model").held
        assert {key: float(value[0]) for key, value in found.items()} == {
            b"1" * 16: 1.0,
            b"2" * 16: 2.0,
        }


def late(call):
    """A call of the system that begins a random moment later."""
    chance = random.Random(0)

    def called(*args, **options):
        if chance.random() < 0.3:
            time.sleep(0.002 * chance.random())
        return call(*args, **options)

    return called
