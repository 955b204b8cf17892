"""Checks of arguments; a message names the argument, what was expected and given."""

import difflib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any


def int_at_least(name: str, value: Any, least: int = 1, *, note: str = "") -> int:
    """A whole number from `least` on; `note` is appended to the range in the message."""
    if _is_int(value) and value >= least:
        return int(value)
    raise ValueError(
        f"{name} must be a whole number of at least {least}{_noted(note)}; it is {value!r}"
    )


def int_between(name: str, value: Any, least: int, most: int, *, note: str = "") -> int:
    """The value as an int, refused outside `least` to `most`, both included."""
    if _is_int(value) and least <= value <= most:
        return int(value)
    raise ValueError(
        f"{name} must be a whole number from {least} to {most}{_noted(note)}; it is {value!r}"
    )


def finite_float(
    name: str, value: Any, *, least: float | None = None, above: float | None = None
) -> float:
    """A finite number, from `least` on or above `above` where one of them is given."""
    number = _real(value)
    fits = math.isfinite(number) and (least is None or number >= least)
    if fits and (above is None or number > above):
        return number
    expected = "" if least is None else f" of at least {least:g}"
    expected += "" if above is None else f" above {above:g}"
    raise ValueError(f"{name} must be a finite number{expected}; it is {value!r}")


def fraction(
    name: str, value: Any, *, of: str = "", zero: bool = False, one: bool = False, note: str = ""
) -> float:
    """A share `of` something, strictly between 0 and 1, or one of the ends where `zero` or `one`
    allows it."""
    share = _real(value)
    if 0 < share < 1 or (zero and share == 0) or (one and share == 1):
        return share
    whole = f" of {of}" if of else ""
    ends = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
    raise ValueError(f"{name} must be a share{whole} in {ends}{_noted(note)}; it is {value!r}")


def refuse_not_finite(name: str, values: Any, note: str = "") -> None:
    """Refuse a tensor that is sparse or complex, or has NaN or infinite values."""
    if str(values.layout) != "torch.strided" or values.is_complex() or values.is_quantized:
        what = f"{values.dtype}, {values.layout}: of a sparse tensor give to_dense()"
        raise ValueError(f"{name} must hold real numbers and be dense; it is {what}")
    if len(broken := (~values.isfinite()).nonzero()):
        what = f"{len(broken)} of its {values.numel()} values are NaN or infinite, the first at"
        raise ValueError(f"{name} must be finite; {what} {tuple(broken[0].tolist())}{note}")


def shaped(
    name: str, value: Any, *forms: str | Sequence[int | str], filled: bool = False, note: str = ""
) -> tuple[int, ...]:
    """The shape of an array, or of a sequence `(N,)`, which must be one of these forms: a letter
    stands for any size, `*event` for one dimension or more and `…` for any number; no size is 0
    where it must be `filled`. `note` is appended to the forms in the message.

    >>> import numpy as np
    >>> shaped("x", np.zeros((5, 3)), "N D")
    (5, 3)
    >>> shaped("y", np.zeros((5, 3)), (5,), ("N", 2))
    Traceback (most recent call last):
    ValueError: y must have shape (5,), or (N, 2); the shape is (5, 3)
    """
    sizes = (len(value),) if isinstance(value, Sequence) else getattr(value, "shape", None)
    shape = None if sizes is None else tuple(sizes)
    allowed = [tuple(form.split()) if isinstance(form, str) else tuple(form) for form in forms]
    fits = shape is not None and any(_is_of(shape, form) for form in allowed)
    if shape is not None and fits and not (filled and 0 in shape):
        return shape
    wanted = ", or ".join(str(form).replace("'", "") for form in allowed)
    note = _noted(note or "none of them 0" * filled)
    actual = "it is None" if shape is None else f"the shape is {shape}"
    raise ValueError(f"{name} must have shape {wanted}{note}; {actual}")


def check_binary(name: str, values: Any, shape: tuple[int, ...], draws: bool = False) -> None:
    """Refuse other values than 0 and 1, or another shape, before which `draws` may stand."""
    shaped(name, values, ("…", *shape) if draws else shape, filled=True)
    if not ((values == 0) | (values == 1)).all():
        raise ValueError(f"{name} must hold 0 and 1 only; threshold probabilities before")


def one_of(names: Iterable[Any], name: str, value: Any) -> Any:
    """One of some names, or a ValueError with those that may have been meant.

    >>> one_of(["invase", "lex"], "method", "invse")
    Traceback (most recent call last):
    ValueError: method must be one of ['invase', 'lex']; it is 'invse': did you mean 'invase'?
    """
    known = list(names)
    if (value is None or isinstance(value, str)) and value in known:
        return value
    meant = did_you_mean(value, known)
    raise ValueError(f"{name} must be one of {known}; it is {value!r}{meant and f': {meant}'}")


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """The names that may have been meant, as a question; empty if none is near."""
    folded = {str(other): str(other).casefold() for other in known}
    near = difflib.get_close_matches(str(name), list(folded), n=3)
    same = [other for other, word in folded.items() if word == str(name).casefold()]
    meant = dict.fromkeys([*same, *near])
    return f"did you mean {quoted(meant)}?" if meant else ""


def refuse_repeated(what: str, names: Iterable[str]) -> None:
    """Refuse names that repeat."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{what} must differ from each other; repeated: {quoted(repeated)}")


def folder_of(root: str | Path) -> Path:
    """The root as a folder that is there; ``~`` is the user's own folder."""
    if isinstance(root, str | PathLike) and (folder := Path(root).expanduser()).is_dir():
        return folder
    raise ValueError(f"root must be a folder that is there; it is {str(root)!r}")


def quoted(names: Iterable[object], most: int = 8) -> str:
    """Up to ``most`` names in quotes, and how many more there are."""
    return _joined([repr(str(name)) for name in names], most)


def quoted_counts(counts: Mapping[str, int]) -> str:
    """Up to eight names in quotes, each with its count, and how many more there are."""
    return _joined([f"{name!r} ({count})" for name, count in counts.items()])


def near(name: str, known: Collection[str], what: str = "columns") -> str:
    """Which known name may have been meant, in words.

    Example:
        >>> near("explian", ["explain", "impute"]), near("x", ["explain", "impute"], "commands")
        ("did you mean 'explain'?", "the commands are 'explain', 'impute'")
    """
    return did_you_mean(name, known) or f"the {what} are {quoted(known, most=20)}"


def _is_int(value: Any) -> bool:
    # The type itself is asked first: abstract classes are slow, and steps of a fit pass here.
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _real(value: Any) -> float:
    """The number, or NaN for anything else."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan


def _is_of(shape: tuple[int, ...], form: tuple[int | str, ...]) -> bool:
    for mark, least in (("*event", 1), ("…", 0)):
        if mark in form:
            place = form.index(mark)
            several = len(shape) - len(form) + 1
            if several < least:
                return False
            form = (*form[:place], *"N" * several, *form[place + 1 :])
    sizes = zip(shape, form, strict=False)
    return len(shape) == len(form) and all(isinstance(m, str) or n == m for n, m in sizes)


def _noted(note: str) -> str:
    return f", {note}" if note else ""


def _joined(words: list[str], most: int = 8) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
