"""One thread a process, an empty parameter store, the tiers, and the guard of shared fixtures."""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

# Two processes with two threads each are slower on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

STATES = pytest.StashKey[dict[int, Any]]()
"""States of the shared fixtures' values as they were made, by fixture definition."""


def pytest_configure(config: pytest.Config) -> None:
    """Import what warns: the process that reads the workers' warnings does so in a thread for each,
    and two that import one package at once may find half of it."""
    config.stash[STATES] = {}
    importlib.import_module("lexppl.evaluation")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under `-m smoke`, files without a smoke test are not imported, which takes half a minute."""
    if config.option.markexpr != "smoke" or collection_path.suffix != ".py":
        return None
    return "pytest.mark.smoke" not in collection_path.read_text(encoding="utf-8") or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a function marked `complete(but=n)`, `n` cases spread evenly stay in the default tier."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("complete")
        if mark is not None and "but" in mark.kwargs:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for alike in cases.values():
        alike.sort(key=lambda item: list(item.callspec.indices.values()))
        kept = alike[0].get_closest_marker("complete").kwargs["but"]
        for place in range(min(kept, len(alike))):
            item = alike[place * len(alike) // min(kept, len(alike))]
            item.own_markers = [mark for mark in item.own_markers if mark.name != "complete"]


@pytest.fixture(autouse=True)
def empty_parameter_store() -> Iterator[None]:
    """A test that runs a program by itself leaves nothing to one that looks for leavings."""
    yield
    if "pyro" in sys.modules:
        sys.modules["pyro"].clear_param_store()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[Any]:
    """Note what a fixture of several tests has made."""
    value = yield
    if fixturedef.scope in ("module", "package", "session") and fixturedef.baseid:
        request.config.stash[STATES][id(fixturedef)] = _state(value)
    return value


def pytest_fixture_post_finalizer(fixturedef: Any, request: Any) -> None:
    """Fail where a test has changed what a fixture of several tests had made."""
    before = request.config.stash[STATES].pop(id(fixturedef), None)
    if before is not None and fixturedef.cached_result is not None:
        after = _state(fixturedef.cached_result[0])
        assert after == before, (
            f"a test changed the fixture {fixturedef.argname!r} of {fixturedef.baseid}, which "
            "other tests share; copy what is to be changed"
        )


def _state(value: Any) -> Any:
    """What a test could change of a value: files by size and time, all else by its hash."""
    if isinstance(value, Path):
        files = sorted(value.rglob("*")) if value.is_dir() else [value] if value.exists() else []
        return [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
    if isinstance(value, tuple | list):
        return [_state(one) for one in value]
    if type(value).__name__ in ("DataTree", "InferenceData"):
        groups = value.groups() if callable(value.groups) else value.groups
        tables = {name: getattr(value[name], "dataset", value[name]) for name in groups}
        return {name: _state(t.to_dict(data="array")) for name, t in tables.items() if name != "/"}
    if isinstance(value, Mapping):
        return {repr(key): _state(one) for key, one in value.items()}
    fingerprint = importlib.import_module("lexppl.fingerprint").fingerprint
    try:
        return fingerprint(value)
    except TypeError:
        return type(value).__qualname__
