"""DATA as it is typed: a set by name, a file, or a folder; and what is refused beside it."""

import argparse
import difflib
from pathlib import Path

from lexppl.choices.data_sets import (
    IMAGE_SETS,
    TARGETS,
    image_names,
    shipped_names,
    synthetic_names,
    text_names,
)
from lexppl.choices.imputers import IMPUTERS, OF_WORDS, image_imputers
from lexppl.choices.settings import AUTO
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
from lexppl.cli.terminal.errors import UsageError

TABLE = "a table"
"""What DATA can be, beside images and texts."""
NOT_OF = {IMAGES: {"xtab", "suwr"}, TEXTS: {"xtab", "suwr", "senn"}}
"""Methods that have no form for such rows."""


def kind_of_data(options: argparse.Namespace) -> str:
    """Whether DATA is :data:`TABLE`, images or texts."""
    name = options.data
    if name in image_names() or (name and Path(name).expanduser().is_dir()):
        return IMAGES
    if name in text_names() or getattr(options, "text", None) is not None:
        return TEXTS
    return TABLE


def check_data(options: argparse.Namespace) -> None:
    """Refuse DATA that is not there, and what does not go with its kind.

    Raises:
        UsageError: no such set or file; options of another kind, a method or an imputer that has
            no form for such rows, no root, patches larger than an image.
    """
    kind, name = kind_of_data(options), options.data
    if name not in (*image_names(), *text_names(), *shipped_names()):
        path = Path(name).expanduser()
        if not path.exists():
            raise UsageError(_unknown(name, path))
    if name in shipped_names() and (typed := typed_of(options, ROWS, COLUMNS, FILE)):
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
    if name in image_names():
        _refuse_options(options, "is for a folder of images", "--size", "--grayscale")
        shape = IMAGE_SETS[name].shape[1:]
        _check_set(options, " and ".join(IMAGE_SETS[name].files))
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
    if options.data in text_names():
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
    """Refuse a set by name without its files, or with shares, as it comes in its own parts."""
    for name in ("valid_share", "test_share"):
        if getattr(options, name, None) not in (None, SHARE):
            raise UsageError(
                f"{options.data} comes in its own parts: leave --{name.replace('_', '-')} out"
            )
    if options.root is None:
        raise UsageError(
            f"{options.data} needs --root DIR, the folder with {files}"
            + (" (or one to --download into)" if kind_of_data(options) == IMAGES else "")
        )
    if not Path(options.root).expanduser().is_dir():
        raise UsageError(f"root must be a folder that is there; it is {options.root!r}")


def _refuse(options: argparse.Namespace, why: str, *kinds: str) -> None:
    """Refuse options of some kinds that were typed and mean nothing here."""
    _refuse_options(options, why, *typed_of(options, *kinds))


def _refuse_options(options: argparse.Namespace, why: str, *names: str) -> None:
    for name in names:
        if value_of(options, name) not in (None, False, []):
            raise UsageError(f"{name} {why}: leave it out for {options.data}")


def _unknown(name: str, path: Path) -> str:
    if path.suffix or len(path.parts) > 1:
        return f"there is no file {name!r}"
    known = (*shipped_names(), *image_names(), *text_names())
    if close := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"there is no data set or file {name!r}; did you mean {close[0]!r}?"
    sets = " and ".join(", ".join(map(repr, names)) for names in (TARGETS, synthetic_names()))
    return f"there is no data set or file {name!r}; the sets that come along are {sets}"
