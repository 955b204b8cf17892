"""Files that are damaged, hostile or of another version: refused by name.

No file may end in another library's error, run anything, take much memory or end the process.
"""

import copy
import random
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from lexppl import fit, load, save
from lexppl.saving import UnreadableFileError
from lexppl.saving.files import refuse_sizes
from lexppl.systems import lex
from tests import test_configured
from tests.refusals import over
from tests.saving.changed import WEIGHTS, change_description, change_text, description_of

MUTATIONS = 200
X = torch.sin(7 * torch.linspace(-1, 1, 48).reshape(12, 4))
SIZES = {"hidden": (3,), "predictor_hidden": (3,)}
WRONG = (10**12, 10**40, -1, "x", "../../etc/passwd", None, [], {}, True, 1e300, [1, 2, 3])


def written(folder, seed):
    result = fit(
        lex(4, classes=2, k=2, **SIZES),
        (X, (X[:, 0] > 0).long()),
        epochs=2,
        replicates=2,
        seed=seed,
        progress=False,
    )
    save(result, folder)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return written(tmp_path_factory.mktemp("saved") / "explainer", 0)


def refusal(folder, **given):
    """The error with which a folder is refused, None where it loads."""
    try:
        load(folder, **given)
    except UnreadableFileError as error:
        assert "\n" not in str(error)
        assert str(error.path) in str(error)
        return error
    return None


def mutated(content, chance):
    """Other bytes: a bit flipped, some cut off, left out, doubled, put to zero or drawn."""
    at = chance.randrange(len(content))
    length = chance.randint(1, 40)
    kinds = (
        lambda: content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :],
        lambda: content[:at],
        lambda: content[:at] + content[at + length :],
        lambda: content[:at] + content[at : at + length] + content[at:],
        lambda: content[:at] + bytes(length) + content[at + length :],
        lambda: content[:at] + chance.randbytes(length) + content[at + length :],
        lambda: content[at:] + content[:at],
        lambda: chance.randbytes(len(content)),
    )
    return chance.choice(kinds)()


def assert_damage_is_refused(path, read):
    """Each of 200 damaged copies of a file is refused in a line that names it; the file is left."""
    chance, whole = random.Random(0), path.read_bytes()
    for _ in range(MUTATIONS):
        content = whole
        while content == whole:
            content = mutated(whole, chance)
        path.write_bytes(content)
        with pytest.raises(UnreadableFileError) as refused:
            read(path)
        assert "\n" not in str(refused.value) and str(path) in str(refused.value)
    path.write_bytes(whole)


def places(described, at=()):
    """Where something stands in a description, as the keys that lead to it."""
    if at:
        yield at
    entries = described.items() if isinstance(described, dict) else ()
    entries = enumerate(described) if isinstance(described, list) else entries
    for key, below in list(entries):
        yield from places(below, (*at, key))


def with_other(described, at, value):
    other = copy.deepcopy(described)
    place = other
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = copy.deepcopy(value)
    return other


def test_200_damaged_explainers_are_refused_by_name(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "damaged")
    assert_damage_is_refused(folder / WEIGHTS, lambda _: load(folder))
    assert refusal(folder) is None


def test_a_description_fits_no_other_weights(saved, tmp_path):
    folder, other = tmp_path / "mixed", written(tmp_path / "other", 1)
    shutil.copytree(saved, folder)
    with safe_open(folder / WEIGHTS, "pt") as file:
        change_text(folder, file.metadata()["lexppl"], load_file(other / WEIGHTS))
    assert "checksum" in str(refusal(folder))


@over(
    ("", "not JSON"),
    ("[]", "bare value"),
    ("[" * 100_000, "nested too deep"),
    ('{"format": NaN}', "NaN"),
    ('{"format": 6}', "no checksum"),
    ('{"format": 4}', "wrote it in format 4"),
    (None, "has no description"),
)
def test_what_is_no_description_is_refused(content, words, saved, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(saved, folder)
    change_text(folder, content)
    assert words in str(refusal(folder))


@pytest.mark.complete
def test_wrong_types_in_every_field_are_refused(saved, tmp_path):
    """Descriptions whose checksum fits, as only someone who means harm writes them."""
    chance = random.Random(2)
    folder = tmp_path / "hostile"
    shutil.copytree(saved, folder)
    described = description_of(saved)
    deep = []
    for _ in range(400):
        deep = [deep]
    wrong = (*WRONG, deep, {"part": "LEX", "config": {}}, {"part": ["LEX"], "config": 3})
    every = [(at, value) for at in places(described) for value in wrong]
    state = torch.get_rng_state()
    refused = 0
    tried = chance.sample(every, 400)
    for at, value in tried:
        change_description(folder, with_other(described, at, value))
        try:
            refused += refusal(folder) is not None
        except ValueError as error:
            assert "give model= to load" in str(error)
    # The others are of a right type: another name, epoch or number.
    assert refused > 0.8 * len(tried)
    assert torch.equal(state, torch.get_rng_state())


def test_no_number_of_a_billion_is_built():
    """Each whole number of each shipped part's description put to 10¹²."""
    tried = 0
    for described in test_configured.DESCRIPTIONS:
        weights = test_configured.rebuilt(described).state_dict()
        refuse_sizes(described, weights)
        for at in places(described):
            value = described
            for key in at:
                value = value[key]
            if type(value) is int:
                tried += 1
                with pytest.raises(ValueError, match="which its weights do not fill"):
                    refuse_sizes(with_other(described, at, 10**12), weights)
    assert tried > 100


NETWORK = ("model", "config", "selector", "config", "network")


def of_part(part, **config):
    return NETWORK, {"part": part, "config": config}


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (("format",), 7, "wrote it in format 7"),
        ((*NETWORK, "config", "hidden"), [10**12], "which its weights do not fill"),
        ((*NETWORK, "config", "hidden"), [5], "its weights are not those of what"),
        (*of_part("system", command="touch ran"), "not among the known parts"),
        (*of_part("os.system"), "not among the known parts"),
        (*of_part("MLP", inputs=4, outputs=2, __class__="x"), "__class__"),
        (*of_part("MLP", inputs=4, outputs=2, seed=3), "seed of a MLP"),
        (*of_part("MLP", inputs=4.5, outputs=2), "inputs of a MLP must be int"),
        (*of_part("TorchvisionNetwork", weights="DEFAULT"), "weights of a TorchvisionNetwork"),
        *(
            (
                ("numbers", "model"),
                [{"path": "selector", "name": name, "values": [1, 2]}],
                f"'{name}' is no number",
            )
            for name in ("forward", "training", "_modules", "no_such")
        ),
        (("best_epoch",), [0], "best_epoch must have shape (2,); the shape is (1,)"),
        (("seed",), "x", "seed of a FitResult must be int"),
        (("history", "train"), [[0.1], [0.2]], "cannot be read"),
        (("sampler",), {"name": 3}, "name of a SamplerRecord must be str"),
    ],
)
def test_wrong_descriptions_are_refused(saved, tmp_path, at, value, words):
    folder = tmp_path / "hostile"
    shutil.copytree(saved, folder)
    change_description(folder, with_other(description_of(saved), at, value))
    assert words in str(refusal(folder))


@pytest.fixture
def most_made(monkeypatch):
    """The most numbers that a tensor was made of by a size alone, on a device with memory."""
    made = [0]

    def counted(call):
        def called(*size, **options):
            tensor = call(*size, **options)
            made[0] = max(made[0], tensor.numel() if tensor.device.type != "meta" else 0)
            return tensor

        return called

    for name in ("empty", "zeros", "full", "ones", "randn", "arange", "eye"):
        monkeypatch.setattr(torch, name, counted(getattr(torch, name)))
    return made


@pytest.mark.parametrize("hidden", [[6000, 6000], [900] * 80], ids=["wide", "deep"])
def test_parts_that_the_weights_do_not_fill_are_refused_without_their_memory(
    saved, tmp_path, most_made, hidden
):
    """Of a size of which 64 bytes describe gigabytes: the widths alone are no size to refuse."""
    folder = shutil.copytree(saved, tmp_path / "large")
    described = with_other(description_of(saved), (*NETWORK, "config", "hidden"), hidden)
    refuse_sizes(described, {})
    change_description(folder, described)
    assert "weights do not fill" in str(refusal(folder))
    assert most_made[0] <= 900**2


def test_folds_that_the_weights_do_not_fill_are_refused(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "folds")
    names = {f"model.0.predictor.predictors.{n}.x": torch.zeros(1) for n in range(1000)}
    weights = {**load_file(folder / WEIGHTS), **names}
    at = ("model", "config", "predictor")
    described = description_of(folder)
    (fold, *_) = described["model"]["config"]["predictor"]["config"]["predictors"]
    change_description(folder, with_other(described, at, fold), weights)
    assert "too few for predictors of 1000 folds" in str(refusal(folder))


def test_weights_of_another_kind_of_number_are_refused(saved, tmp_path):
    folder = tmp_path / "kinds"
    shutil.copytree(saved, folder)
    weights = load_file(folder / WEIGHTS)
    described = description_of(folder)
    name = next(iter(weights))

    def refused_as(dtype):
        change_description(folder, described, {**weights, name: weights[name].to(dtype)})
        return refusal(folder)

    assert "must be torch.float32" in str(refused_as(torch.int64))
    # Weights of another precision are the same weights.
    assert refused_as(torch.float64) is None


def test_a_program_that_is_not_the_one_is_refused_as_the_user_s(saved):
    with pytest.raises(ValueError, match="not those of the model that model= gives") as refused:
        load(saved, model=lambda: nn.Linear(2, 2))
    assert not isinstance(refused.value, UnreadableFileError)
