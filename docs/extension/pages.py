"""The pages that are written before a build: one for each public name, and the notebooks."""

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from extension.public import kind_of, packages, public_names

DIRECTIVES = {
    "class": ":members:\n   :show-inheritance:",
    "exception": ":show-inheritance:",
    "function": "",
    "data": "",
}


def write(docs: Path, root: Path) -> None:
    """Write the reference into `docs/api` and copy the notebooks into `docs/notebooks`."""
    api = docs / "api"
    shutil.rmtree(api, ignore_errors=True)
    api.mkdir(exist_ok=True)
    for package in packages():
        names = public_names(package)
        (api / f"{package}.rst").write_text(_package_page(package, names), encoding="utf-8")
        for name in names:
            page = _page(package, name, getattr(import_module(package), name))
            (api / f"{page_of(package, name)}.rst").write_text(page, encoding="utf-8")
    (api / "index.md").write_text(_index_page(), encoding="utf-8")
    copies = docs / "notebooks"
    copies.mkdir(exist_ok=True)
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        shutil.copyfile(path, copies / path.name)


def page_of(package: str, name: str) -> str:
    """The page's name: a class and a function that differ by a capital alone are two files, on
    disks that do not tell them apart too."""
    twins = [other for other in public_names(package) if other.lower() == name.lower()]
    return f"{package}.{name}" + ("_" * twins.index(name))


def _index_page() -> str:
    pages = "\n".join(packages())
    return (
        "# Reference\n\nWhat is public: the names on these pages, each from where it is "
        "imported.\n[Versions](../versions.md) says what that promises.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{pages}\n```\n"
    )


def _package_page(package: str, names: list[str]) -> str:
    """The package's docstring, and a line a name."""
    table = "\n".join(f"   {name}" for name in names)
    return (
        f"{package}\n{'=' * len(package)}\n\n.. automodule:: {package}\n   :no-members:\n\n"
        f".. autosummary::\n   :nosignatures:\n\n{table}\n"
    )


def _page(package: str, name: str, value: Any) -> str:
    """A name's page, in no table of contents: five hundred of them would stand beside each page."""
    kind = kind_of(value)
    options = DIRECTIVES[kind]
    body = f"   {options}\n" if options else ""
    title = name.replace("_", "\\_")
    if package == "lexppl" and kind == "class":
        # A class has one page with its methods, where it is defined.
        home = value.__module__.rpartition(".")[0]
        body = f"   The same as :class:`{home}.{name}`.\n"
        return (
            f":orphan:\n\n{title}\n{'=' * len(title)}\n\n.. py:class:: {package}.{name}\n\n{body}"
        )
    return (
        f":orphan:\n\n{title}\n{'=' * len(title)}\n\n.. currentmodule:: {package}\n\n"
        f".. auto{kind}:: {name}\n{body}"
    )
