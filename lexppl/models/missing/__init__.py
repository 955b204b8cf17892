"""Values that are missing in x: hidden by nature, as a mask hides others."""

from lexppl.models.missing.gaps_from_markers import GapsFromMarkers
from lexppl.models.missing.hidden_by_nature import HiddenByNature
from lexppl.models.missing.observed_selector import ObservedSelector

__all__ = ["GapsFromMarkers", "HiddenByNature", "ObservedSelector"]
