"""Modules of the benchmarks' folder, loaded by their names."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"


def benchmark_module(name):
    spec = spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
