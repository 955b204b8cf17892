"""FastSHAP, and the selector of its own."""

from lexppl.systems.fastshap.system import FastSHAP, TeacherTargets, fastshap
from lexppl.systems.fastshap.uniform_size_selector import UniformSizeSelector

__all__ = ["FastSHAP", "TeacherTargets", "UniformSizeSelector", "fastshap"]
