"""Outputs are there in full or not at all."""

import os
from collections import namedtuple
from pathlib import Path

import pytest

from lexppl.sealed_files import (
    is_full_disk,
    output_file,
    output_folder,
    refuse_without_space,
    write_through,
)


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
    with pytest.raises(OSError, match="No space left") as one:
        write_through(Path("/dev/full"), b"content")
    assert is_full_disk(one.value)
