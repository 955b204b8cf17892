"""What is refused as it was typed, before torch is loaded."""

import argparse
import importlib.util
import re
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from lexppl.argument_checks import near
from lexppl.choices import data_sets, settings
from lexppl.choices.files import ENCODING, EXPLAINER, OUTPUTS
from lexppl.choices.imputers import IMPUTERS, LEARNED, OF_PIXELS, OF_WORDS, image_imputers
from lexppl.choices.methods import LIBRARIES
from lexppl.choices.settings import AUTO, SETTINGS, Regime, check_settings
from lexppl.cli.options.readers import names_of
from lexppl.cli.options.table import (
    BOTH,
    COLUMNS,
    FDR,
    FILE,
    IMAGES,
    ROWS,
    SHARE,
    TABLES,
    TEXTS,
    typed_of,
    value_of,
)
from lexppl.cli.terminal import UsageError
from lexppl.sealed_files import check_output_file, check_output_folder

DEVICES = frozenset({"cpu", "cuda", "mps", "xpu", "hpu", "xla", "mtia", "vulkan", "privateuseone"})
"""Devices that torch computes on, if present."""
BESIDE = frozenset(
    f"--{name}"
    for name in ("with", "out", "overwrite", "row", "penalty", "draws", "seed", "quiet", "debug")
)
"""Options beside `--with`."""
OF_EPOCHS = ("epochs", "masks", "imputations", "batch_size", "learning_rate")
"""Options of a fit, which an inference does not take."""
OF_ITS_OWN = ("predictor", "folds")  # Options that no posterior takes
TABLE = "a table"  # A kind of DATA, beside images and texts
NOT_OF = {IMAGES: {"xtab", "suwr"}, TEXTS: {"xtab", "suwr", "senn"}}
"""Methods without a form for such rows."""


def check_options(options: argparse.Namespace) -> None:
    """Refuse options that cannot be carried out.

    Raises:
        UsageError: options that do not go together, or that a method does not take; an unknown
            name of a method, data set, file or device.
        FileExistsError: an output that is there already.
        FileNotFoundError: no such black box.
        ImportError: a library that is not installed.
    """
    command = options.command
    if command == "explain" and options.explainer is not None:
        explainer_folder(options)
        check_output_folder(options.out, options.overwrite, OUTPUTS)
        return
    if command in ("explain", "compare") and options.valid_share + options.test_share >= 1.0:
        raise UsageError(
            "--valid-share and --test-share must leave rows to fit on; they are "
            f"{options.valid_share:g} and {options.test_share:g}"
        )
    if command == "explain":
        _check_method(options)
        posterior_of(options)
        regime_of(options)
        _check_checkpoint(options)
    if command == "compare":
        for name in options.methods:
            if (library := LIBRARIES.get(name)) is not None:
                _check_installed(name, library, "compare")
    if command == "change":
        named = {"--old": [options.old], "--new": [options.new], "--refits": options.refits}
        for flag, files in named.items():
            for file in files:
                check_black_box(flag, file, options.trust_black_box)
    if command == "impute":
        options.imputers = imputers_of(options.imputers, kind_of_data(options) == IMAGES)
    _check_device(options.device)
    if command == "explain":
        check_output_folder(options.out, options.overwrite, OUTPUTS)
    elif options.out is not None:
        check_output_file(options.out, options.overwrite)
    if command != "evaluate":
        check_data(options)
    if command == "explain" and options.black_box:
        check_black_box("--black-box", options.black_box, options.trust_black_box)
    elif command == "explain" and (options.max_calls or options.cache):
        raise UsageError("--max-calls and --cache are of a --black-box: give one")


def check_row_numbers(numbers: Sequence[int], count: int, rows: str) -> None:
    """Refuse numbers of `--row` that are none of the rows, described in words.

    Raises:
        UsageError: naming the first.
    """
    for row in numbers:
        if row >= count:
            raise UsageError(f"--row must be 0 to {count - 1}, {rows}; it is {row}")


def imputers_of(text: str | None, images: bool = False) -> list[str]:
    """The imputers to score, from names between commas; all quick ones by default.

    Raises:
        UsageError: no name, an unknown one, or one twice.
    """
    usual = image_imputers() if images else IMPUTERS
    if text is None:
        return [name for name in usual if name not in OF_PIXELS]
    try:
        return names_of(text, "an imputer", (*usual, *LEARNED))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--imputers {error}") from None


def regime_of(options: argparse.Namespace) -> Regime:
    """The regime: as typed, or by whether there is a black box.

    Raises:
        UsageError: a black box where the regime takes none, or none where it needs one.
    """
    if options.regime is None:
        return Regime.SURROGATE_POST_HOC if options.black_box else Regime.FREE_IN_SITU
    regime = next(r for r in Regime if r.value.replace(" ", "-") == options.regime)
    if (regime is Regime.SURROGATE_POST_HOC) != bool(options.black_box):
        needed = "needs a --black-box" if not options.black_box else "takes no --black-box"
        raise UsageError(f"--regime {options.regime} {needed}")
    return regime


def check_beside(words: Sequence[str]) -> None:
    """Refuse options of a fit beside `--with`."""
    typed = [word.partition("=")[0] for word in words if word.startswith("--")]
    other = [option for option in typed if option not in BESIDE]
    if other:
        raise UsageError(f"{other[0]} is of a fit, and --with explains without one")


def explainer_folder(options: argparse.Namespace) -> Path:
    """The folder of the explainer of `--with`: that folder, or one within it.

    Raises:
        UsageError: no explainer, none of a table in a file, or no file of rows.
    """
    typed = Path(options.explainer).expanduser()
    folder = next(
        (p for p in (typed, typed / EXPLAINER) if (p / "weights.safetensors").is_file()), None
    )
    if folder is None:
        raise UsageError(f"--with {options.explainer}: there is no explainer")
    folder = folder.resolve()
    if not (folder.parent / ENCODING).is_file():
        raise UsageError(
            f"--with {options.explainer}: there is no {ENCODING} beside the explainer, which only "
            "those of tables in files have"
        )
    if not Path(options.data).expanduser().is_file():
        raise UsageError(f"there is no file {options.data!r}; --with explains rows of a file")
    if Path(options.out).expanduser().resolve() in folder.parents:
        raise UsageError(f"--out {options.out}: the explainer is in this folder; give another")
    if options.penalty is not None and not isinstance(options.penalty, float):
        raise UsageError("--penalty with --with is a number; auto is of a fit")
    return folder


def _check_checkpoint(options: argparse.Namespace) -> None:
    """Refuse a folder that cannot hold states."""
    typed = options.resume or options.checkpoint
    if typed is None:
        return
    option = "--checkpoint" if options.resume is None else "--resume"
    folder, out = (Path(path).expanduser().resolve() for path in (typed, options.out))
    if folder == out or out in folder.parents:
        raise UsageError(f"{option} {typed} is within --out, which is written at the end, in one")
    if options.inference is not None:
        raise UsageError(
            f"{option} keeps the state of a fit, and --inference {options.inference} draws, which "
            "cannot go on from a state: leave one of the two out"
        )
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{option} {typed} is a file; give the name of a folder")
    if options.resume is not None and not any(folder.rglob("state.pt")):
        raise UsageError(f"--resume {typed}: no state is there; give --checkpoint to begin")


def check_black_box(flag: str, file: str, trusted: bool) -> None:
    """Refuse a model's file that is missing, or whose code may not run."""
    path = Path(file).expanduser()
    if path.suffix != ".onnx" and not trusted:
        raise UsageError(
            f"{flag} {path}: loading a joblib or pickle file runs the code in it; give "
            "--trust-black-box too if you trust where it comes from"
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no black box file {str(path)!r}")


def _check_method(options: argparse.Namespace) -> None:
    """Refuse settings that the method does not take."""
    try:
        typed = {name: getattr(options, name, None) for name in SETTINGS}
        check_settings(options.method, "--{}", **typed)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_installed(name: str, library: str, extra: str) -> None:
    if importlib.util.find_spec(library) is None:
        raise ImportError(
            f"{name} needs {library}, which is not installed; install the extra that has it: "
            f'pip install "lexppl[{extra}]"'
        )


def _check_device(name: str) -> None:
    """Refuse a name that torch does not know, unless a library brings devices."""
    known = re.fullmatch(r"([a-z]+)(:\d+)?", name)
    if known and (known[1] in DEVICES or entry_points(group="torch.backends")):
        return
    raise UsageError(f"--device {name}: no such device on this machine")


def posterior_of(options: argparse.Namespace) -> settings.AskedPosterior | None:
    """The posterior of the weights that was typed, if any.

    Raises:
        UsageError: a prior without a posterior; a method or options without one.
        ImportError: the extra is not installed.
    """
    values = {name: getattr(options, name, None) for name in ("inference", "guide", "prior")}
    named = next((name for name in ("inference", "guide") if values[name] is not None), None)
    if named is None:
        if values["prior"] is not None:
            raise UsageError("--prior is of a posterior: give --inference or --guide too")
        return None
    typed = f"--{named} {values[named]}"
    if options.method not in settings.WITH_PRIOR:
        raise UsageError(
            f"{typed}: the weights of {options.method} have no prior here; "
            f"--method {' or '.join(settings.WITH_PRIOR)} has one"
        )
    if options.black_box or options.regime is not None:
        raise UsageError(f"{typed} explains the labels: leave --black-box and --regime out")
    if options.penalty == "auto":
        raise UsageError(f"{typed} chooses no penalty from the data: give nats, or leave it out")
    _refuse_beside(typed, options, OF_ITS_OWN)
    if named == "inference":
        _refuse_beside(typed, options, OF_EPOCHS)
        if values[named] in settings.HAMILTONIAN and options.imputer not in (None, "constant"):
            raise UsageError(
                f"{typed} sums over masks, each with one imputation: give --imputer constant, or "
                "leave it out"
            )
    if values[named] in settings.NEED_BAYES:
        _check_installed(typed, settings.BAYES_LIBRARY, "bayes")
    prior = settings.PRIOR_SCALE if values["prior"] is None else values["prior"]
    return settings.AskedPosterior(values["inference"], values["guide"], prior)


def _refuse_beside(typed: str, options: argparse.Namespace, names: tuple[str, ...]) -> None:
    useless = [name for name in names if getattr(options, name, None) not in (None, False)]
    if useless:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in useless)
        raise UsageError(f"{listed} mean nothing beside {typed}: leave them out")


def kind_of_data(options: argparse.Namespace) -> str:
    """Kind of DATA: :data:`TABLE`, images or texts."""
    name = options.data
    if name in data_sets.image_names() or (name and Path(name).expanduser().is_dir()):
        return IMAGES
    if name in data_sets.text_names() or getattr(options, "text", None) is not None:
        return TEXTS
    return TABLE


def check_data(options: argparse.Namespace) -> None:
    """Refuse DATA that is not there, and options of another kind.

    Raises:
        UsageError: also a method or an imputer without a form for such rows, no root, patches
            larger than an image.
    """
    kind, name = kind_of_data(options), options.data
    if name not in (*data_sets.image_names(), *data_sets.text_names(), *data_sets.shipped_names()):
        path = Path(name).expanduser()
        if not path.exists():
            raise UsageError(_unknown(name, path))
        files = sorted(path.iterdir()) if path.is_dir() else []
        if files and not any(file.is_dir() for file in files):
            why = f"is a folder with {files[0].name!r}: give a file for a table"
            raise UsageError(f"{name} {why}; images are in a folder for each class")
    if name in data_sets.shipped_names() and (typed := typed_of(options, ROWS, COLUMNS, FILE)):
        raise UsageError(
            f"{name} is a data set that comes along, and {typed[0]} is for tables in files; for a "
            f"file of that name give ./{name}"
        )
    if kind == TABLE:
        _refuse(options, "is for images and texts", IMAGES, TEXTS, BOTH)
    elif options.command == "compare" or (options.command == "impute" and kind == TEXTS):
        raise UsageError(
            f"{name} has {kind}, and lexppl {options.command} has no form for them; lexppl explain "
            "has"
        )
    else:
        (_check_images if kind == IMAGES else _check_texts)(options)
    if options.command == "explain":
        _check_explained(options, kind)


def _check_explained(options: argparse.Namespace, kind: str) -> None:
    known = {TABLE: IMPUTERS, IMAGES: image_imputers(), TEXTS: OF_WORDS}[kind]
    if options.imputer is not None and options.imputer not in known:
        raise UsageError(
            f"--imputer {options.imputer} is not for {kind}; there are {', '.join(known)}"
        )
    if kind == TABLE:
        return
    _refuse(options, "is for tables", TABLES)
    if options.fdr != FDR:
        raise UsageError("--fdr is for tables: gains of images and texts are not measured")
    if options.method in NOT_OF[kind]:
        others = "lex, real_x, l2x, invase and others are for them"
        raise UsageError(f"--method {options.method} is for tables, and not for {kind}: {others}")
    if options.penalty == AUTO:
        raise UsageError(
            f"--penalty auto is for tables, as fits of {kind} at several penalties take too long: "
            "give nats, --k, or leave it out"
        )


def _check_images(options: argparse.Namespace) -> None:
    name, shape = options.data, (options.size,) * 2
    if getattr(options, "text", None) is not None:
        raise UsageError(f"--text is for a table with a column of texts; {name} has images")
    _refuse(options, "is for texts", TEXTS)
    _refuse(options, "is for tables", ROWS, COLUMNS, FILE)
    if name in data_sets.image_names():
        _refuse_options(options, "is for a folder of images", "--size", "--grayscale")
        shape = data_sets.IMAGE_SETS[name].shape[1:]
        _check_set(options, " and ".join(data_sets.IMAGE_SETS[name].files))
    else:
        why = "is for a set by name, and this is a folder"
        _refuse_options(options, why, "--root", "--download")
    if shape[0] is not None and (options.patches or 0) > min(shape):
        raise UsageError(
            f"--patches must be at most {min(shape)}, as the images are {shape[0]} × {shape[1]} "
            f"pixels; it is {options.patches}"
        )


def _check_texts(options: argparse.Namespace) -> None:
    _refuse(options, "is for images", IMAGES)
    _refuse(options, "is for tables of other columns than texts", COLUMNS)
    if options.data in data_sets.text_names():
        why = "is for a table with a column of texts"
        _refuse_options(options, why, "--text")
        _refuse(options, why, ROWS, FILE)
        _check_set(options, "imdb_reviews.csv.xz or aclImdb")
        return
    _refuse_options(options, "is for a set by name, and this is a table", "--root")
    if not Path(options.data).expanduser().is_file():
        raise UsageError(f"there is no file {options.data!r}")
    if options.text == options.target:
        raise UsageError(f"--text and --target name the same column, {options.text!r}")


def _check_set(options: argparse.Namespace, files: str) -> None:
    """Refuse a set by name without its files, or with shares."""
    for name in ("valid_share", "test_share"):
        if getattr(options, name, None) not in (None, SHARE):
            raise UsageError(f"{options.data} comes in parts: leave --{name.replace('_', '-')} out")
    if options.root is None:
        raise UsageError(
            f"{options.data} needs --root DIR, the folder with {files}"
            + (" (or one to --download into)" if kind_of_data(options) == IMAGES else "")
        )
    if not Path(options.root).expanduser().is_dir():
        raise UsageError(f"root must be a folder that is there; it is {options.root!r}")


def _refuse(options: argparse.Namespace, why: str, *kinds: str) -> None:
    """Refuse options of some kinds."""
    _refuse_options(options, why, *typed_of(options, *kinds))


def _refuse_options(options: argparse.Namespace, why: str, *names: str) -> None:
    for name in names:
        if value_of(options, name) not in (None, False, []):
            raise UsageError(f"{name} {why}: leave it out for {options.data}")


def _unknown(name: str, path: Path) -> str:
    if path.suffix or len(path.parts) > 1:
        return f"there is no file {name!r}"
    known = (*data_sets.shipped_names(), *data_sets.image_names(), *data_sets.text_names())
    hint = near(name, known, "sets that come along")
    return f"there is no data set or file {name!r}; {hint}"
