"""The site builds without a warning, its programs run, and what it names is there."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch

from lexppl.cli import main
from lexppl.systems import METHODS
from tests.refusals import over

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if path.parent.name not in ("api", "notebooks", "_build")
)
THEORY = sorted((DOCS / "theory").glob("*.md"))
SYSTEMS = sorted((DOCS / "systems").glob("*.md"))
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"^\$\$\n(.*?)^\$\$(.*?)\n(.*?)(?=^#|^\$\$\n|\Z)", re.MULTILINE | re.DOTALL)
TESTED = re.compile(r"```{tested-by}\n(.*?)```", re.DOTALL)


def read(path):
    return path.read_text(encoding="utf-8")


SMALL = {
    "start/table.md": {
        "rows = 2000": "rows = 200",
        "readmitted --out explanation": "readmitted --epochs 2 --out explanation",
        "--row 17 --out": "--row 17 --epochs 2 --penalty 0.02 --replicates 2 --out",
        'penalty="auto", random_state=0': "epochs=2, random_state=0",
        "ExplainerRegressor(random": "ExplainerRegressor(epochs=2, random",
    },
    "start/model.md": {
        'imputer="conditional-gaussian", random_state=0': (
            'imputer="conditional-gaussian", epochs=2, random_state=0'
        ),
        'model_output="logits", random': 'model_output="logits", epochs=2, random',
        "model=slow, random_state=0": "model=slow, epochs=2, random_state=0",
        "--trust-black-box": "--trust-black-box --epochs 2 --penalty 0.02 --replicates 2",
    },
    "start/pyro.md": {
        "rows=4000": "rows=400",
        "epochs=100": "epochs=2",
        "epochs=50": "epochs=2",
        "draws=100": "draws=5",
    },
    "start/statistician.md": {
        "warmup=100, samples=200": "warmup=5, samples=30",
        '"epochs": 400': '"epochs": 5',
        "simulations=100": "simulations=10",
        "at_once=50": "at_once=10",
    },
    "images_texts.md": {},
    # Followed as it is by tests/explanation/test_shared_masks.py.
    "theory/priors_on_size.md": {},
    "scikit_learn.md": {"random_state=0), {": "random_state=0, epochs=3), {"},
    "systems.md": {"rows=4000": "rows=400", "epochs=30": "epochs=2"},
    "own.md": {
        "rows=2000": "rows=200",
        "epochs=40": "epochs=2",
        "epochs=60": "epochs=15",
        "epochs=150": "epochs=40",
        "epochs=100": "epochs=10",
    },
    "other_formats.md": {"replicates=2, random_state=0": "replicates=2, epochs=2, random_state=0"},
    "theory/changes.md": {},
    "questions.md": {"warmup=100, samples=100": "warmup=5, samples=5"},
    # Followed by tests/test_serving.py.
    "serving.md": {},
    "scaling.md": {
        "rows=2000": "rows=200",
        "(0.01, 0.02, 0.04)": "(0.01, 0.02)",
        "range(4)": "range(2)",
        "epochs=50": "epochs=2",
        "epochs=20": "epochs=1",
        "20_000": "400",
        "5_000": "100",
        "every_minutes=10": "every_minutes=0",
    },
}
"""What makes the programs of a page short; each must be there to be replaced."""


def blocks(page):
    """The programs and commands of a page, in order."""
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def shorter(page):
    text = "\0".join(f"{language}\1{block}" for language, block in blocks(page))
    for long, short in SMALL[page].items():
        assert long in text, f"{page} no longer has {long!r}"
        text = text.replace(long, short)
    return [tuple(part.split("\1")) for part in text.split("\0")]


@pytest.fixture
def followed(tmp_path, monkeypatch, capsys):
    """Follow a page by its own words, in an empty folder."""

    def follow(page):
        monkeypatch.chdir(tmp_path)
        names: dict = {"__name__": "page"}
        codes = []
        for language, block in shorter(page):
            if language == "python":
                exec(compile(block, page, "exec"), names)
                continue
            for command in block.strip().splitlines():
                words = command.split()
                assert words[0] == "lexppl"
                codes.append(main([*words[1:], "--quiet"]))
        return names, codes, capsys.readouterr()

    return follow


@pytest.mark.complete
@pytest.mark.filterwarnings("ignore")
def test_i_have_a_table(followed, tmp_path):
    names, codes, printed = followed("start/table.md")
    assert "it enters by its logarithm" in printed.out and "likelihood is Student" in printed.out
    assert codes == [0, 0]
    page = (DOCS / "start/table.md").read_text(encoding="utf-8")
    (decided,) = re.findall(r"^lexppl: decided: (missing values in 1 of 5 columns)", page, re.M)
    assert decided in printed.err and "'frailty'" in printed.out
    written = {path.name for path in (tmp_path / "explanation").iterdir()}
    listed = set(re.findall(r"^\| `([\w.]+)/?` \|", page, re.MULTILINE))
    assert listed <= written
    assert len(listed) >= 7
    assert names["posterior"]["predictions"]["mask"].sizes["row"] == 10
    assert set(names["explainer"].entry_names_) == {"age", "frailty", "days", "ward", "rain"}
    assert (tmp_path / "row_17" / "report.html").is_file()


@pytest.mark.complete
@pytest.mark.filterwarnings("ignore")
def test_i_have_a_model(followed, tmp_path):
    names, codes, _ = followed("start/model.md")
    assert codes == [0]
    assert 0 < names["agreement"] <= 1
    assert names["slow"].calls.rows == 200
    assert names["explainer"].importances(names["X_test"]).shape == (143, 30)
    assert (tmp_path / "of_the_model" / "report.html").is_file()


@pytest.mark.filterwarnings("ignore")
def test_i_write_pyro(followed):
    names, _, printed = followed("start/pyro.md")
    exact, bounds = names["exact"], names["bounds"]
    # The page draws without a seed, networks too: bounds are above the sum but for their noise.
    assert all(0.99 * exact < bound < 1.1 * exact for bound in bounds)
    assert "outside mask_particles()" in printed.out
    assert "mask_mean_over_rows" in names["draws"]["posterior"].data_vars


@pytest.mark.filterwarnings("ignore")
def test_i_am_a_statistician(followed):
    names, _, printed = followed("start/statistician.md")
    assert names["before"]["prior"]["kept"].sizes["feature"] == 4
    assert names["posterior"]["posterior"]["slope"].dims[-1] == "feature"
    assert names["checked"].names == (*(f"slope[{i}]" for i in range(4)), "noise")
    assert "elpd" in printed.out


@pytest.mark.filterwarnings("ignore")
def test_write_your_own(followed):
    try:
        names, _, printed = followed("own.md")
    finally:
        METHODS._methods.pop("at_most_one", None)
    ones = [
        float(number) for number in re.findall(r"tensor\(\[(.*?)\]\)", printed.out)[0].split(",")
    ]
    assert ones == pytest.approx([1, 1, 1], abs=1e-3)
    assert names["result"].best_valid.shape == (1,)
    assert names["lost"].dims == ("chain", "row") and float(abs(names["lost"]).max()) > 0
    assert names["both"]["size"].dims == ("chain", "draw", "row")
    # Of the last program: fewer columns at a higher λ, and none of those that are known.
    sizes = re.findall(r"^0\.\d+ tensor\((.*?)\)", printed.out, re.M)
    assert len(sizes) == 3 and float(sizes[0]) > float(sizes[2])
    assert names["judge"].entries == 13 and sorted(
        names["asking"].order(names["new_x"][:1])[0].tolist()
    ) == list(range(13))
    assert not {0, 1} & set(names["asked"].tolist())


@pytest.mark.filterwarnings("ignore")
@over(
    ("scikit_learn.md", lambda n: n["explainer"].importances(n["X_test"]).shape == (143, 30)),
    ("systems.md", lambda n: len(n["result"].history) == 4),
    ("other_formats.md", lambda n: n["kept"].values.shape == (100, 30)),
    (
        "images_texts.md",
        lambda n: n["loud"].targets(n["written"][:4]).argmax(1).tolist() == [1, 0, 1, 0],
    ),
)
def test_scikit_learn_and_systems(page, check, followed):
    assert check(followed(page)[0])


@pytest.mark.filterwarnings("ignore")
def test_r_reads_what_is_written(followed, tmp_path):
    r, page = shutil.which("Rscript"), (DOCS / "other_formats.md").read_text(encoding="utf-8")
    if r is None or subprocess.call([r, "-e", "library(jsonlite)"]):
        pytest.skip("needs R and its package jsonlite")
    names, _, _ = followed("other_formats.md")
    block = re.findall(r"^```r\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "page.R").write_text(f"{block}\ncat(nrow(rows), row$row, nrow(row$features))\n")
    ran = subprocess.run([r, "page.R"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.endswith(f"{len(names['rows'])} 3 30")


@pytest.mark.filterwarnings("ignore")
def test_scaling(followed, tmp_path):
    names, _, _ = followed("scaling.md")
    assert [model.selector.k for model in names["several"].models] == [3, 5, 7]
    path = names["path"]
    assert path.penalty in path.table["penalty"].tolist() and len(path.table) == 5
    assert len(path.fitted.history) == 1
    assert names["compiled"].reasons == ()
    losses = names["table"]["valid_loss"]
    assert len(losses) == 4 and names["best"].best_valid[0] == losses.min()
    assert names["posterior"]["sample_stats"].sizes["row"] == 400
    assert any((tmp_path / "state").rglob("state.pt"))


@pytest.mark.complete
@pytest.mark.filterwarnings("ignore")
def test_questions_are_answered_by_runs(followed):
    """Each answer is read off the truth of the table: what matters is found, a copy gains nothing
    beyond the other, b gains where the switch is above 0, and drawing given the rest wins."""
    names, _, _ = followed("questions.md")
    worth, parts, crps = names["worth"], names["parts"], names["scores"].table["crps"]
    assert worth.loc[["a", "b", "switch"], "found"].all()
    assert not worth.loc["noise", "found"]
    assert worth.loc["a", "first"] > 0.1
    assert worth.loc["a", "last"] < 0.02
    assert parts["lower"].iloc[-1] > parts["upper"].iloc[0]
    assert crps["given the rest", 0.5] < crps["by itself", 0.5]
    assert names["data"].n_entries == 6
    assert names["certified"]["size"].sizes["row"] == 5
    assert names["shared"]["posterior"]["kept"].sizes["feature"] == 5


SHORT = {
    "pymc": ("pm.sample()", "pm.sample(tune=200, draws=200, chains=1, progressbar=False)"),
    "numpyro": ("num_warmup=500, num_samples=1000", "num_warmup=100, num_samples=200"),
    "lexppl": ("warmup=100, samples=200", "warmup=5, samples=20"),
}
"""By program, what makes its spike-and-slab model of `coming_from.md` short."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", SHORT)
def test_one_model_in_three_programs(program):
    """The first two columns have effects, and each program finds them."""
    pytest.importorskip(program)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 4))
    y = x[:, 0] - 0.7 * x[:, 1] + draw.normal(size=80)
    text = (DOCS / "coming_from.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\{code-block\} python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if re.search(rf"(from|import|, ) *{program}\b", block)]
    assert SHORT[program][0] in block
    names = (
        {"x": torch.tensor(x), "y": torch.tensor(y)} if program == "lexppl" else {"x": x, "y": y}
    )
    exec(compile(block.replace(*SHORT[program]), program, "exec"), names)
    if program == "numpyro":
        kept = np.asarray(names["sampler"].get_samples()["kept"]).mean(0)
    else:
        drawn = names["trace"] if program == "pymc" else names["posterior"]
        kept = drawn["posterior"]["kept"].mean(("chain", "draw")).values
    assert kept[:2].min() > 0.9 and kept[2:].max() < 0.7


def test_what_changed_between_two_tables(followed):
    names, _, _ = followed("theory/changes.md")
    assert names["table"]["found"].to_dict() == {"x2": True, "x1": False, "x3": False}


def test_every_page_with_programs_is_followed():
    with_programs = {
        str(path.relative_to(DOCS)) for path in PAGES if BLOCK.search(path.read_text("utf-8"))
    }
    assert with_programs - {"start/install.md"} == set(SMALL)


def defined(test):
    """Whether `tests/file.py::name` is a test."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file() or not name.startswith("test_"):
        return False
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in body)


@pytest.mark.parametrize(
    "path", [*THEORY, *SYSTEMS], ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_formula_names_tests_that_are_there(path):
    text = path.read_text(encoding="utf-8")
    found = FORMULA.findall(text)
    assert 2 * len(found) == len(re.findall(r"^\$\$", text, re.MULTILINE))
    for formula, label, below in found:
        assert re.fullmatch(r" \([\w-]+\)", label), formula
        named = TESTED.search(below)
        assert named, f"no test is named for {formula}"
        assert all(map(defined, named[1].split())), named[1]


def test_there_are_formulas_and_each_system_has_one():
    of_theory = sum(len(FORMULA.findall(path.read_text("utf-8"))) for path in THEORY)
    assert of_theory > 35
    assert {path.stem for path in SYSTEMS} == {*METHODS, "cxplain"}
    for path in SYSTEMS:
        text = path.read_text(encoding="utf-8")
        assert len(FORMULA.findall(text)) == 1
        assert (f"{{system-row}} {path.stem}\n" in text) == (path.stem in METHODS)


def test_a_name_that_is_not_there_is_noticed():
    here = "tests/test_docs.py"
    assert defined(f"{here}::test_a_name_that_is_not_there_is_noticed")
    assert not defined(f"{here}::test_that_nobody_wrote")
    assert not defined("tests/test_nothing.py::test_scaling")
    assert not FORMULA.findall("no formula")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_within_the_pages_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", text):
        if not target.startswith(("http://", "https://")):
            parts = Path(target).parts
            written = "api" in parts[:2] or "notebooks" in parts[:2]
            there = (
                ROOT / "notebooks" / parts[-1] if "notebooks" in parts[:2] else path.parent / target
            )
            assert there.is_file() or (written and "api" in parts[:2]), target


def test_files_that_the_architecture_names_exist():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text)
    assert len(paths) > 30
    for path in paths:
        home = ROOT if path.startswith(("tests/", "docs/", "lexppl/")) else ROOT / "lexppl"
        assert (home / path).exists(), path


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built from a copy of what it is made of."""
    missing = [
        name
        for name in ("sphinx", "myst_nb", "furo", "sphinx_copybutton", "sphinx_design")
        if find_spec(name) is None
    ]
    if missing:
        pytest.skip(f'the site is built by {", ".join(missing)}: pip install "lexppl[docs]"')
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "benchmarks", "notebooks", "tests"):
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__", "api", "_build"),
        )
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "html"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "html"


def public():
    """`extension/public.py` of the site, which says what is public."""
    spec = spec_from_file_location("public", DOCS / "extension" / "public.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.complete
def test_the_site_builds_without_a_warning(site):
    assert (site / "index.html").is_file()
    # Nothing that a page asks for comes from elsewhere; formulas are MathML.
    index, formulas = (read(site / page) for page in ("index.html", "theory/objective.html"))
    scripts = re.findall(r'src="(https?://[^"]+)"', index + formulas)
    assert all("mathjax" in script for script in scripts)
    if find_spec("latex2mathml"):
        assert not scripts and formulas.count("<math ") > 10
        shown = "".join(map(read, site.rglob("*.html")))
        commands = set(re.findall(r"<m[inot]+>\\[a-z]+", shown))
        assert not commands, f"latex2mathml does not know {commands}"


@pytest.mark.complete
def test_every_public_name_has_a_page(site):
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    names = public().every_name()
    assert len(names) > 200
    assert not set(names) - known
    pages = {path.stem for path in (site / "api").glob("*.html")}
    assert all(name in pages or f"{name}_" in pages for name in names)


@pytest.mark.complete
def test_no_page_is_asked_for_that_is_not_there(site):
    for page in site.rglob("*.html"):
        for target in set(re.findall(r'href="([^"#?:]+)(?:#[^"]*)?"', page.read_text("utf-8"))):
            assert (page.parent / target).exists(), f"{page.relative_to(site)}: {target}"


@pytest.mark.complete
def test_figures_stand_beside_the_papers(site):
    page = (site / "systems" / "real_x.html").read_text(encoding="utf-8")
    row = re.search(
        r"<tr[^>]*>(?:(?!</tr>).)*real_x(?:(?!</tr>).)*S3(?:(?!</tr>).)*93\.5", page, re.S
    )
    assert row
    assert "Checked by" in page
    assert "100, 93.5, 2.6" in page


def test_what_was_public_is_public():
    listed = set((DOCS / "public_names.txt").read_text(encoding="utf-8").split())
    gone = listed - set(public().every_name())
    assert not gone, (
        f"{sorted(gone)} were public: deprecate them first (docs/versions.md), or before the first "
        "release write the list again by python docs/public_names.py"
    )
    assert 200 < len(listed) <= 255
    assert listed >= set(public().every_name()), "docs/public_names.py writes what was added"


def test_every_public_name_stands_in_a_document():
    code = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
    texts = [text for page in (ROOT / "README.md", *PAGES) for text in code.findall(read(page))]
    # The table of the systems names their parts in its cells.
    texts.append(read(DOCS / "systems.md"))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(read(notebook))["cells"]
        texts += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    named = set(re.findall(r"\w+", "\n".join(texts)))
    missing = {name.rpartition(".")[2] for name in public().every_name()} - named
    assert not missing
