"""XTab, and the parts of its own."""

from lexppl.systems.xtab.noisy_features import NoisyFeatures
from lexppl.systems.xtab.rectified_code import RectifiedCode
from lexppl.systems.xtab.shared_mask import CombinedMask, GatedMask
from lexppl.systems.xtab.subset_network import SubsetNetwork
from lexppl.systems.xtab.system import xtab

__all__ = ["CombinedMask", "GatedMask", "NoisyFeatures", "RectifiedCode", "SubsetNetwork", "xtab"]
