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
from lexppl.choices.methods import METHODS
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import check_settings
from lexppl.cli.options.checkpoint_options import check_checkpoint
from lexppl.cli.options.data_name import check_data_name
from lexppl.cli.options.explainer_folder import explainer_folder
from lexppl.cli.options.image_and_text_options import (
    IMAGES,
    check_images_and_texts,
    kind_of_data,
)
from lexppl.cli.options.posterior_options import posterior_of
from lexppl.cli.outputs import OUTPUTS
from lexppl.cli.terminal.errors import UsageError

SETTINGS = ("k", "penalty", "imputer", "masks", "imputations", "folds", "predictor", "regime")
"""Options that not every method has."""

DEVICES = frozenset({"cpu", "cuda", "mps", "xpu", "hpu", "xla", "mtia", "vulkan", "privateuseone"})
"""What torch knows by name and can compute on, if it is there."""


def check_options(options: argparse.Namespace) -> None:
    """Refuse what cannot be carried out as it was typed.

    Raises:
        UsageError: options that do not go together, or that a method does not read; a name of no
            method, data set, file or device.
        FileExistsError: an output that is there already.
        FileNotFoundError: no such black box.
        ImportError: a method whose library is not installed.
    """
    if options.command == "explain" and options.explainer is not None:
        explainer_folder(options)
        check_output_folder(options.out, options.overwrite, OUTPUTS)
        return
    if options.command in ("explain", "compare"):
        _check_shares(options)
    if options.command == "explain":
        _check_method(options)
        posterior_of(options)
        regime_of(options)
        check_checkpoint(options)
    if options.command == "compare":
        _check_libraries(methods_of(options.methods))
        if options.hide_missing:
            raise UsageError(
                "--hide-missing is for lexppl explain: the methods that compare puts side by side, "
                "and their judge, see every value; give --drop-missing"
            )
    if options.command == "impute":
        imputers_of(options.imputers, kind_of_data(options) == IMAGES)
        if options.hide_missing:
            raise UsageError(
                "--hide-missing is for lexppl explain: a hidden value must be known to be scored; "
                "give --drop-missing"
            )
    _check_device(options.device)
    if options.command == "explain":
        check_output_folder(options.out, options.overwrite, OUTPUTS)
    elif options.out is not None:
        check_output_file(options.out, options.overwrite)
    if options.command != "evaluate":
        check_data_name(options)
        check_images_and_texts(options)
    if options.command == "explain" and options.black_box:
        check_black_box(options)


def methods_of(text: str) -> list[str]:
    """The methods that are compared, from their names between commas.

    Raises:
        UsageError: none, one that is not there, or one twice.

    Example:
        >>> methods_of("lex, shap")
        ['lex', 'shap']
    """
    return _names_of(text, "--methods", "a method", (*METHODS, *LIBRARIES))


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
    return _names_of(text, "--imputers", "an imputer", (*usual, *LEARNED))


def _names_of(text: str, option: str, one: str, known: Sequence[str]) -> list[str]:
    """The names between commas, each of them known and there once."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(
            f"{option} takes names separated by commas; {', '.join(unknown) or 'none'} given, of "
            f"{', '.join(known)}"
        )
    if len(set(names)) < len(names):
        raise UsageError(f"{option} names {one} twice: {text}")
    return names


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


def check_black_box(options: argparse.Namespace) -> None:
    """Refuse a black box that is not there, or whose code nobody said may run.

    Raises:
        UsageError: without `--trust-black-box`.
        FileNotFoundError: no such file.
    """
    path = Path(options.black_box).expanduser()
    if not options.trust_black_box:
        raise UsageError(
            f"--black-box {path}: loading a joblib or pickle file runs the code in it; give "
            "--trust-black-box too if you trust where it comes from"
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no black box file {str(path)!r}")


def _check_shares(options: argparse.Namespace) -> None:
    if options.valid_share + options.test_share >= 1.0:
        raise UsageError(
            "--valid-share and --test-share must leave rows to fit on; they are "
            f"{options.valid_share:g} and {options.test_share:g}"
        )


def _check_method(options: argparse.Namespace) -> None:
    """Refuse options that the method does not read."""
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
