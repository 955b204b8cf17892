"""The options of images and texts, and what is refused of them as it was typed."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from lexppl.choices.data_sets import IMAGE_SETS, image_names, text_names
from lexppl.choices.imputers import IMPUTERS, OF_WORDS, image_imputers
from lexppl.choices.settings import AUTO
from lexppl.cli.options.typed_values import int_at_least
from lexppl.cli.terminal.errors import UsageError

TABLE, IMAGES, TEXTS = "a table", "images", "texts"
"""What DATA can be."""
SHARE, FDR = 0.2, 0.1
"""Of `lexppl explain`, where nothing is typed: of rows to judge, and of false discoveries."""
NETWORKS = ("flat", "convolutional")
ENDS = ("start", "end")
OF_IMAGES = ("patches", "size", "grayscale", "networks", "download")
OF_TEXTS = ("vocabulary", "length", "keep_words")
OF_BOTH = ("root", "rows")
FILE_OPTIONS = ("separator", "decimal", "encoding", "column_names", "missing")
"""Of how a file is read, which a file with a column of texts has too."""
COLUMN_OPTIONS = (
    "task",
    "drop",
    "keep",
    "categorical",
    "hide_missing",
    "missing_indicator",
    "drop_constant",
    "rare",
    "dates",
)
OF_TABLES = (
    *("predictor", "regime", "black_box", "inference", "guide", "prior"),
    *("fwer", "groups", "group", "time"),
)
"""Of tables alone."""
NOT_OF: Mapping[str, frozenset[str]] = MappingProxyType(
    {IMAGES: frozenset({"xtab", "suwr"}), TEXTS: frozenset({"xtab", "suwr", "senn"})}
)
"""Methods that have no form for such rows."""


def image_and_text_options(group: argparse._ArgumentGroup) -> None:
    """Add those of `lexppl explain`.

    Args:
        group: of the command's options.
    """
    image_options(group)
    group.add_argument(
        "--networks",
        choices=NETWORKS,
        help="of images: perceptrons of the pixels, or a U-Net and a convolutional network, which "
        "take longer (default: flat)",
    )
    group.add_argument(
        "--text",
        metavar="COLUMN",
        help="DATA is a table with a column of texts: explain by their words; the other columns "
        "but the target are not read",
    )
    group.add_argument(
        "--vocabulary",
        type=int_at_least(1),
        metavar="V",
        help="words that are known, the most frequent of the texts to fit on (default: 10000)",
    )
    group.add_argument(
        "--length",
        type=int_at_least(1),
        metavar="T",
        help="most words of a text (default: those of the longest, and at most 400)",
    )
    group.add_argument(
        "--keep-words",
        choices=ENDS,
        help="of a longer text, keep its first or its last T words (default: refuse it; of imdb "
        "the end)",
    )


def image_options(group: argparse._ArgumentGroup) -> None:
    """Add those that say which images are read, and what an entry of a mask is."""
    group.add_argument(
        "--root", metavar="DIR", help="the folder with the files of a set by name, such as mnist"
    )
    group.add_argument(
        "--download",
        action="store_true",
        help="let torchvision put files of images that are not there into --root",
    )
    group.add_argument(
        "--patches",
        type=int_at_least(1),
        metavar="P",
        help="keep or hide patches of P × P pixels (default: 4)",
    )
    group.add_argument(
        "--size",
        type=int_at_least(1),
        metavar="S",
        help="of a folder: bring every image to S × S pixels",
    )
    group.add_argument(
        "--grayscale", action="store_true", help="of a folder: read images in shades of grey"
    )
    group.add_argument(
        "--rows",
        type=int_at_least(10),
        metavar="N",
        help="images or texts to fit on, at most, at random, and as many to choose the best epoch "
        "on and to judge (default: 2000)",
    )


def kind_of_data(options: argparse.Namespace) -> str:
    """Whether DATA is :data:`TABLE`, :data:`IMAGES` or :data:`TEXTS`.

    Args:
        options: as typed.
    """
    name = options.data
    if name in image_names() or (name and Path(name).expanduser().is_dir()):
        return IMAGES
    if name in text_names() or getattr(options, "text", None) is not None:
        return TEXTS
    return TABLE


def check_images_and_texts(options: argparse.Namespace) -> None:
    """Refuse what does not go with the kind of DATA.

    Raises:
        UsageError: options of another kind, a method or an imputer that has no form for such
            rows, no root, patches larger than an image.
    """
    kind = kind_of_data(options)
    if kind == TABLE:
        _refuse(options, (*OF_IMAGES, *OF_TEXTS, *OF_BOTH), "is for images and texts")
        if options.command == "explain":
            _check_imputer(options, kind, tuple(IMPUTERS))
        return
    if options.command == "compare" or (options.command == "impute" and kind == TEXTS):
        raise UsageError(
            f"{options.data} has {kind}, and lexppl {options.command} has no form for them; "
            "lexppl explain has"
        )
    _check_kind[kind](options)
    if options.command == "explain":
        _check_explained(options, kind)


def _check_explained(options: argparse.Namespace, kind: str) -> None:
    _refuse(options, OF_TABLES, "is for tables")
    if options.fdr != FDR:
        raise UsageError("--fdr is for tables: gains of images and texts are not measured")
    if options.method in NOT_OF[kind]:
        others = "lex, real_x, l2x, invase and others are for them"
        raise UsageError(f"--method {options.method} is for tables, and not for {kind}: {others}")
    _check_imputer(options, kind, tuple(image_imputers() if kind == IMAGES else OF_WORDS))
    if options.penalty == AUTO:
        raise UsageError(
            f"--penalty auto is for tables, as fits of {kind} at several penalties take too long: "
            "give nats, --k, or leave it out"
        )


def _check_imputer(options: argparse.Namespace, kind: str, known: tuple[str, ...]) -> None:
    if options.imputer is not None and options.imputer not in known:
        raise UsageError(
            f"--imputer {options.imputer} is not for {kind}; there are {', '.join(known)}"
        )


def _check_own_parts(options: argparse.Namespace) -> None:
    """Refuse shares of a set that comes in parts to fit on, to choose the epoch on and to judge."""
    for name in ("valid_share", "test_share"):
        if getattr(options, name) not in (None, SHARE):
            raise UsageError(
                f"{options.data} comes in its own parts: leave --{name.replace('_', '-')} out"
            )


def _check_images(options: argparse.Namespace) -> None:
    name = options.data
    if getattr(options, "text", None) is not None:
        raise UsageError(f"--text is for a table with a column of texts; {name} has images")
    _refuse(options, OF_TEXTS, "is for texts")
    _refuse(options, (*FILE_OPTIONS, *COLUMN_OPTIONS, "target", "drop_missing"), "is for tables")
    if name not in image_names():
        _refuse(options, ("root", "download"), "is for a set by name, and this is a folder")
        side = options.size
        shape = None if side is None else (side, side)
    else:
        _refuse(options, ("size", "grayscale"), "is for a folder of images")
        shape = IMAGE_SETS[name].shape[1:]
        _check_own_parts(options)
        _check_root(options, " and ".join(IMAGE_SETS[name].files))
    if shape is not None and (options.patches or 0) > min(shape):
        raise UsageError(
            f"--patches must be at most {min(shape)}, as the images are {shape[0]} × {shape[1]} "
            f"pixels; it is {options.patches}"
        )


def _check_texts(options: argparse.Namespace) -> None:
    _refuse(options, OF_IMAGES, "is for images")
    _refuse(options, COLUMN_OPTIONS, "is for tables of other columns than texts")
    path = Path(options.data).expanduser()
    if options.data in text_names():
        others = ("text", "target", "drop_missing", *FILE_OPTIONS)
        _refuse(options, others, "is for a table with a column of texts")
        _check_own_parts(options)
        _check_root(options, "imdb_reviews.csv.xz or aclImdb")
        return
    _refuse(options, ("root",), "is for a set by name, and this is a table")
    if not path.is_file():
        raise UsageError(f"there is no file {options.data!r}")
    if options.text == options.target:
        raise UsageError(f"--text and --target name the same column, {options.text!r}")


_check_kind: Mapping[str, Callable[[argparse.Namespace], None]] = MappingProxyType(
    {IMAGES: _check_images, TEXTS: _check_texts}
)


def _check_root(options: argparse.Namespace, files: str) -> None:
    if options.root is None:
        raise UsageError(
            f"{options.data} needs --root DIR, the folder with {files}"
            + (" (or one to --download into)" if kind_of_data(options) == IMAGES else "")
        )
    if not Path(options.root).expanduser().is_dir():
        raise UsageError(f"root must be a folder that is there; it is {options.root!r}")


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Refuse options that were typed and mean nothing here."""
    for name in names:
        if getattr(options, name, None) not in (None, False, []):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} {why}: leave it out for {options.data}")
