"""Outputs are there in full or not at all."""

import errno
import os
import signal
from collections import namedtuple
from pathlib import Path

import pytest

from lexppl.sealed_files import (
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
