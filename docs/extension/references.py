"""Names in docstrings find their pages: by where they are defined, or by their last part alone."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Any

from sphinx.util.nodes import make_refnode

import lexppl
from extension.public import every_name

PACKAGE = Path(lexppl.__file__).parent
OTHERS = (
    *("abc", "collections", "enum", "typing"),
    *("torch", "pyro", "numpy", "pandas", "arviz", "xarray", "sklearn", "shap", "matplotlib"),
)
"""Libraries with sites of their own, linked with `-t online`."""


def setup(app: Any) -> None:
    homes: dict[str, str] = {}
    by_last: dict[str, set[str]] = defaultdict(set)
    for public, value in every_name().items():
        package, _, name = public.rpartition(".")
        by_last[name].add(public)
        module = getattr(value, "__module__", package)
        if not str(module).startswith("lexppl"):
            # A name for something of another library, such as a type of functions.
            module = package
        home = f"{module}.{getattr(value, '__qualname__', name)}"
        # The shorter of two: `lexppl.fit` stands before `lexppl.inference.fit`.
        homes[home] = min(public, homes.get(home, public), key=len)
    app.connect("missing-reference", Resolver(homes, dict(by_last), names_defined(PACKAGE)))
    app.connect("autodoc-process-bases", public_bases)
    app.connect("autodoc-skip-member", without_others)


class Resolver:
    """From a reference without a page to the page of what it means.

    Args:
        homes: public name by the name where it is defined.
        by_last: public names by their last part.
        defined: all names of the sources, public or not.
    """

    def __init__(
        self, homes: dict[str, str], by_last: dict[str, set[str]], defined: set[str]
    ) -> None:
        self.homes = homes
        self.defined = defined
        self.by_last = by_last

    def __call__(self, app: Any, env: Any, node: Any, contnode: Any) -> Any:
        if node.get("refdomain") != "py":
            return None
        objects = env.get_domain("py").objects
        for candidate in self._candidates(node["reftarget"]):
            if candidate in objects:
                found = objects[candidate]
                return make_refnode(
                    app.builder, node["refdoc"], found.docname, found.node_id, contnode, candidate
                )
        return contnode if self._is_plain(node) else None

    def _is_plain(self, node: Any) -> bool:
        """Whether a name needs no page: a type in a signature, what stands in another library, and
        in docstrings what is there in this one and not public. A name for nothing is warned of."""
        if "refexplicit" not in node and node["reftype"] in ("class", "obj"):
            return True
        parts = node["reftarget"].lstrip(".~").split(".")
        if parts[0] in OTHERS:
            return len(parts) > 1
        return parts[-1] in self.defined and node["refdoc"].startswith("api/")

    def _candidates(self, target: str) -> list[str]:
        target = target.lstrip(".~")
        found = []
        parts = target.split(".")
        for end in range(len(parts), 0, -1):
            head, tail = ".".join(parts[:end]), parts[end:]
            names = {self.homes[head]} if head in self.homes else set()
            if not names:
                names = self.by_last.get(parts[end - 1], set())
            found += [".".join([name, *tail]) for name in sorted(names, key=len)]
        return found


def names_defined(folder: Path) -> set[str]:
    """All names that the sources define, public or not."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        found |= {path.stem, path.parent.name}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return found


def public_bases(app: Any, name: str, value: Any, options: Any, bases: list) -> None:
    """In the place of a base class that has no page, those that it has itself."""
    public = {id(one) for one in every_name().values()}

    def shown(base: Any) -> list[Any]:
        home = getattr(base, "__module__", "")
        if not home.startswith("lexppl") or id(base) in public:
            return [base] if isinstance(base, type) and base is not object else []
        return [one for above in getattr(base, "__bases__", ()) for one in shown(above)]

    kept = dict.fromkeys(one for base in bases for one in shown(base))
    bases[:] = list(kept) or [object]


def without_others(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> Any:
    """scikit-learn's setters of metadata routing, and matplotlib's of everything, are described
    there."""
    routing = name.startswith("set_") and name.endswith("_request")
    return (
        True if routing or str(getattr(value, "__module__", "")).startswith("matplotlib") else None
    )
