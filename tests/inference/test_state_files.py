"""A state as files: what is written is what is read, and nothing else is read."""

import hashlib
import json
import math
import os
import pickle
import random

import numpy as np
import pytest
import torch
from safetensors.torch import save

from lexppl.inference.training.checkpoints.state_files import (
    SCHEMA,
    read_state,
    refuse_unwritable,
    write_state,
)
from lexppl.sealed_files import UnreadableFileError, checksum_of, sealed

STATE = {
    "numbers": [1, -2.5, 1e-300, math.inf, -math.inf, True, None, "é\n"],
    "pair": (0.9, 0.999, ("inner", [])),
    3: {"step": torch.tensor(7.0), "by place": torch.arange(6).reshape(2, 3).mT},
    "half": torch.tensor([0.1, 0.2], dtype=torch.bfloat16),
    "empty": torch.zeros(0, 4),
    "losses": np.array([[0.1, np.nan], [np.inf, -0.0]], dtype=np.float32),
    "a/b": {"c": torch.ones(1)},
    "a": {"b/c": torch.zeros(1)},
    "numpy's": np.float64(0.1),
}


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(map(same, one, other)) and len(one) == len(other)
    return one == other and isinstance(one, type(other))


def test_what_is_written_is_read_to_the_bit(tmp_path):
    size = write_state(tmp_path / "one", STATE)
    assert same(STATE, read_state(tmp_path / "one"))
    assert size == sum(file.stat().st_size for file in (tmp_path / "one").iterdir())
    nan = write_state(tmp_path / "two", {"nan": math.nan})
    assert nan and math.isnan(read_state(tmp_path / "two")["nan"])
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_a_change_in_any_byte_is_noticed(tmp_path):
    """Each byte in turn, of both files: one bit of it."""
    write_state(tmp_path / "one", {"w": torch.arange(3.0), "rate": 0.125, "names": ["ab"]})
    draw = random.Random(0)
    for file in (tmp_path / "one").iterdir():
        whole = file.read_bytes()
        for place in range(len(whole)):
            byte = whole[place] ^ (1 << draw.randrange(8))
            file.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            try:
                found = read_state(tmp_path / "one")
            except UnreadableFileError as error:
                assert str(tmp_path / "one") in str(error)
            else:
                # A space of JSON is no part of the state.
                assert found["w"].tolist() == [0.0, 1.0, 2.0]
                assert (found["rate"], found["names"]) == (0.125, ["ab"])
        file.write_bytes(whole)
    read_state(tmp_path / "one")


def forged(folder, content, weights=b"", schema=SCHEMA):
    """Files with the checksums that they should have."""
    folder.mkdir()
    description = {"schema": schema, "checksum": checksum_of(weights), "state": content}
    (folder / "state.json").write_text(sealed(description))
    (folder / "tensors.safetensors").write_bytes(weights)
    return folder


def of_schema_1(folder, state):
    """A state as the first schema had it: no seal, and one checksum of both files."""
    write_state(folder, state)
    weights = (folder / "tensors.safetensors").read_bytes()
    content = json.loads((folder / "state.json").read_text())["state"]
    told = json.dumps(content, separators=(",", ":")).encode()
    checksum = hashlib.sha256(hashlib.sha256(weights).digest() + told).hexdigest()
    description = {"schema": 1, "checksum": checksum, "state": content}
    (folder / "state.json").write_text(json.dumps(description))
    return folder


def test_states_of_the_first_schema_are_read_or_refused(tmp_path):
    folder = of_schema_1(tmp_path / "one", STATE)
    assert same(STATE, read_state(folder))
    for file, before, after in (
        ("state.json", b"0.999", b"0.998"),
        ("state.json", b'"schema": 1', b'"schema": 2'),
        ("tensors.safetensors", torch.tensor(7.0).numpy().tobytes(), b"\x00\x00\xe1\x40"),
    ):
        whole = (folder / file).read_bytes()
        assert whole.count(before) == 1
        (folder / file).write_bytes(whole.replace(before, after))
        with pytest.raises(UnreadableFileError, match="checksum"):
            read_state(folder)
        (folder / file).write_bytes(whole)


class Hostile:
    """Would make a folder where it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (self.place,)


@pytest.mark.parametrize(
    ("content", "weights"),
    [
        ({"items": [["w", {"tensor": "/other", "device": "cpu"}]]}, save({"/w": torch.ones(1)})),
        ({"items": [["w", {"tensor": "/w", "device": "abacus"}]]}, save({"/w": torch.ones(1)})),
        ({"items": [["w"]]}, save({})),
        ({"items": [[[], 1]]}, save({})),
        ({"items": 3}, save({})),
        ({"code": "print()"}, save({})),
        ([1, 2], save({})),
        ({"items": []}, b"no tensors"),
        ({"items": [["w", {"float": "x"}]]}, save({})),
    ],
)
def test_what_no_writer_has_written_is_refused_by_name(content, weights, tmp_path):
    with pytest.raises(UnreadableFileError, match=r"one\S* cannot be read"):
        read_state(forged(tmp_path / "one", content, weights))


def test_a_pickle_is_not_loaded(tmp_path):
    place = tmp_path / "made by code"
    attack = pickle.dumps(Hostile(str(place)))
    folder = forged(tmp_path / "one", {"items": []}, attack)
    with pytest.raises(UnreadableFileError):
        read_state(folder)
    (folder / "state.json").write_bytes(attack)
    with pytest.raises(UnreadableFileError):
        read_state(folder)
    assert not place.exists()
    pickle.loads(attack)
    assert place.exists()


def test_json_without_a_bottom_is_refused(tmp_path):
    folder = forged(tmp_path / "one", {"items": []}, save({}))
    (folder / "state.json").write_text("[" * 200_000)
    with pytest.raises(UnreadableFileError):
        read_state(folder)


def test_a_later_version_says_what_to_do(tmp_path):
    folder = forged(tmp_path / "one", {"items": []}, save({}), schema=9)
    with pytest.raises(UnreadableFileError, match=r"state\.json .* in format 9.*update lexppl"):
        read_state(folder)


@pytest.mark.parametrize("value", [{1, 2}, print, object(), [1, {"rule": b"x"}]])
def test_what_cannot_be_written_is_refused_by_its_place(value, tmp_path):
    with pytest.raises(TypeError, match=r"^it\S* is a \w+, which a checkpoint cannot hold"):
        refuse_unwritable(value, "it")
    with pytest.raises(TypeError, match=r"^deep"):
        write_state(tmp_path / "one", {"deep": value})
    assert not list(tmp_path.iterdir())
