"""What is refused as it was typed, before anything is loaded that does the work."""

import argparse
import importlib.util
import re
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from lexppl.atomic_output import check_output_file, check_output_folder
from lexppl.choices.compared import LIBRARIES
from lexppl.choices.imputers import IMPUTERS, LEARNED, OF_PIXELS, image_imputers
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import SETTINGS, check_settings
from lexppl.cli.options.data_checks import IMAGES, check_data, kind_of_data
from lexppl.cli.options.posterior_options import posterior_of
from lexppl.cli.options.readers import names_of
from lexppl.cli.outputs import ENCODING, EXPLAINER, OUTPUTS
from lexppl.cli.terminal.errors import UsageError

DEVICES = frozenset({"cpu", "cuda", "mps", "xpu", "hpu", "xla", "mtia", "vulkan", "privateuseone"})
"""What torch knows by name and can compute on, if it is there."""
BESIDE = frozenset(
    f"--{name}"
    for name in ("with", "out", "overwrite", "row", "penalty", "draws", "seed", "quiet", "debug")
)
"""Options beside `--with`."""
SHOWN = {
    "compare": "the methods that compare puts side by side, and their judge, see every value",
    "impute": "a hidden value must be known to be scored",
}
"""Why a command has no form for values that are hidden by nature."""


def check_options(options: argparse.Namespace) -> None:
    """Refuse what cannot be carried out as it was typed.

    Raises:
        UsageError: options that do not go together, or that a method does not read; a name of no
            method, data set, file or device.
        FileExistsError: an output that is there already.
        FileNotFoundError: no such black box.
        ImportError: a method whose library is not installed.
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
        _check_libraries(options.methods)
    if command == "impute":
        options.imputers = imputers_of(options.imputers, kind_of_data(options) == IMAGES)
    if command in SHOWN and options.hide_missing:
        raise UsageError(
            f"--hide-missing is for lexppl explain: {SHOWN[command]}; give --drop-missing"
        )
    _check_device(options.device)
    if command == "explain":
        check_output_folder(options.out, options.overwrite, OUTPUTS)
    elif options.out is not None:
        check_output_file(options.out, options.overwrite)
    if command != "evaluate":
        check_data(options)
    if command == "explain" and options.black_box:
        _check_black_box(options)
    elif command == "explain" and (options.max_calls or options.cache):
        raise UsageError("--max-calls and --cache are of a --black-box: give one")


def imputers_of(text: str | None, images: bool = False) -> list[str]:
    """The imputers that are scored, from their names between commas; all but the slow if None.

    Args:
        text: as typed.
        images: whether those of images are meant, and not those of tables.

    Raises:
        UsageError: none, one that is not there, or one twice.

    Example:
        >>> imputers_of("marginal, vaeac")
        ['marginal', 'vaeac']
    """
    usual = image_imputers() if images else IMPUTERS
    if text is None:
        return [name for name in usual if name not in OF_PIXELS]
    try:
        return names_of(text, "an imputer", (*usual, *LEARNED))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--imputers {error}") from None


def regime_of(options: argparse.Namespace) -> Regime:
    """What is explained: as typed, or by whether there is a black box.

    Raises:
        UsageError: a black box for a regime without one, or the other way round.
    """
    if options.regime is None:
        return Regime.SURROGATE_POST_HOC if options.black_box else Regime.FREE_IN_SITU
    regime = next(r for r in Regime if r.value.replace(" ", "-") == options.regime)
    if (regime is Regime.SURROGATE_POST_HOC) != bool(options.black_box):
        needed = "needs a --black-box" if not options.black_box else "takes no --black-box"
        raise UsageError(f"--regime {options.regime} {needed}")
    return regime


def check_beside(words: Sequence[str]) -> None:
    """Refuse options of a fit beside `--with`.

    Args:
        words: as typed.

    Raises:
        UsageError: naming the first.

    Example:
        >>> check_beside(["explain", "new.csv", "--with", "results", "--k=3"])
        Traceback (most recent call last):
        lexppl.cli.terminal.errors.UsageError: --k is of a fit, and --with explains without one
    """
    typed = [word.partition("=")[0] for word in words if word.startswith("--")]
    other = [option for option in typed if option not in BESIDE]
    if other:
        raise UsageError(f"{other[0]} is of a fit, and --with explains without one")


def explainer_folder(options: argparse.Namespace) -> Path:
    """The folder of the explainer of `--with`, by itself or by the folder that a fit wrote.

    Raises:
        UsageError: no explainer there, none of a table, or no file of rows.
    """
    given = Path(options.explainer).expanduser()
    folder = next((p for p in (given, given / EXPLAINER) if (p / "explainer.json").is_file()), None)
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
    """Refuse a folder of states that cannot serve."""
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
        raise UsageError(
            f"--resume {typed}: there is no state of an earlier run; give --checkpoint {typed} to "
            "begin one"
        )


def _check_black_box(options: argparse.Namespace) -> None:
    """Refuse a black box that is not there, or whose code may not run."""
    path = Path(options.black_box).expanduser()
    if path.suffix != ".onnx" and not options.trust_black_box:
        raise UsageError(
            f"--black-box {path}: loading a joblib or pickle file runs the code in it; give "
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


def _check_libraries(names: list[str]) -> None:
    for name in names:
        library = LIBRARIES.get(name)
        if library is not None and importlib.util.find_spec(library) is None:
            raise ImportError(
                f"{name} needs {library}, which is not installed; install the extra that has it: "
                'pip install "lexppl[compare]"'
            )


def _check_device(name: str) -> None:
    """Refuse what torch knows no device by; whether one is there, torch must say.

    Libraries that bring torch devices of other names say so by an entry point.
    """
    known = re.fullmatch(r"([a-z]+)(:\d+)?", name)
    if known and (known[1] in DEVICES or entry_points(group="torch.backends")):
        return
    raise UsageError(f"--device {name}: no such device on this machine")
