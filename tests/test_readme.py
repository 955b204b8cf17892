"""The README's programs run as they are printed, only shorter."""

import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SHOWN = runpy.run_path(str(ROOT / "docs" / "shown.py"))
"""What writes the README's output: `python docs/shown.py`."""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.S)


def names_after(program, quick):
    """Run the shorter form of a program; it must be another one."""
    assert quick != program
    names: dict = {}
    exec(compile(quick, "README.md", "exec"), names)
    return names


def test_own_explainer_runs():
    program = blocks("python")[0]
    assert len([line for line in program.splitlines() if line.strip()]) <= 25
    quick = program.replace("rows=10_000", "rows=400").replace("epochs=100", "epochs=2")
    names = names_after(program, quick)
    posterior = names["posterior"]
    assert posterior["predictions"]["mask"].dims == ("chain", "draw", "row", "feature")
    assert dict(posterior["predictions"].sizes)["chain"] == 2


def test_posterior_of_weights_runs():
    program = blocks("python")[1]
    quick = program.replace("rows=10_000", "rows=200").replace("epochs=60", "epochs=2")
    names = names_after(program, quick.replace("draws=200", "draws=3"))
    latents = {f"selector.network.layers.0.{name}" for name in ("weight", "bias")}
    means = {"mask_mean_over_rows"}
    assert set(names["posterior"]["posterior"].data_vars) == latents | means


def test_images_run():
    program = blocks("python")[2]
    names = names_after(program, program.replace("epochs=60", "epochs=2"))
    assert names["posterior"]["predictions_constant_data"]["feature_map"].shape == (8, 8)
    plt.close("all")


def test_each_program_is_run():
    assert len(blocks("python")) == 3


@pytest.mark.complete
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", range(3))
def test_it_prints_what_its_programs_print(place):
    """To the digits shown, which are those that seeds, versions and processors share."""
    programs = SHOWN["PRINTED"].findall(README.read_text(encoding="utf-8"))
    program, _, shown = programs[place]
    assert program == blocks("python")[place] and len(programs) == 3
    printed, _ = SHOWN["run"](program)
    plt.close("all")
    assert printed == shown


def test_it_counts_the_notebooks():
    assert len(list((ROOT / "notebooks").glob("*.ipynb"))) == 20
    assert "twenty [notebooks](notebooks)" in README.read_text(encoding="utf-8")


def test_commands_are_one_line_each():
    run, test = blocks("bash")
    assert len(run.strip().splitlines()) == len(test.strip().splitlines()) == 1
    assert "lexppl explain breast_cancer" in run and "pytest" in test


def test_it_is_short_and_its_pictures_and_pages_exist():
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 1200
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (README.parent / target).exists(), target


def test_an_installation_without_a_gpu_is_one_more_line():
    text = README.read_text(encoding="utf-8")
    (line,) = re.findall(r"`(python3 [^`]*/whl/cpu)`", text)
    assert line.endswith(
        "pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu"
    )
