"""Names of the dimensions of what all rows share, and of their entries: `dims` and `coords`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lexppl.explanation.masks.program_sites import SharedSite

RESERVED = ("chain", "draw", "row")
FEATURE = "feature"


@dataclass(frozen=True)
class SharedDims:
    """A caller's names: `dims={"slope": ["feature"]}, coords={"feature": ["age", "dose"]}`."""

    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def check(self, shared: Sequence[SharedSite]) -> None:
        """Refuse dims and coords of what is not among the latents that all rows share."""
        unknown = sorted(set(self.dims) - {site.name for site in shared})
        if unknown:
            raise ValueError(
                f"dims names {unknown}; the latents that all rows share are "
                f"{[site.name for site in shared]}"
            )
        for site in shared:
            given, free = self.dims.get(site.name), site.plates.count(None)
            names = [] if given is None else list(given)
            right = not isinstance(given, str) and len(set(names) - set(RESERVED)) == free
            if given is not None and not (right and len(names) == free):
                raise ValueError(
                    f"dims[{site.name!r}] must be {free} names, of the dimensions of its value "
                    f"{site.shape} that are no plate, none of {RESERVED}; it is {given!r}"
                )
        known = {FEATURE, *(name for names in self.dims.values() for name in names)}
        known |= {plate for site in shared for plate in site.plates if plate is not None}
        strange = sorted(set(self.coords) - known)
        if strange:
            raise ValueError(f"coords names {strange}; dimensions to name are {sorted(known)}")

    def of(
        self, site: SharedSite, entries: int, coordinates: Mapping[str, Sequence[Any]]
    ) -> list[str]:
        """The dimensions of a latent: given, its plates, `feature` where it shares out a unit among
        the G mask entries, or `<site>_dim_<i>`."""
        given = iter(self.dims.get(site.name, ()))
        own = [size for size, plate in zip(site.shape, site.plates, strict=True) if plate is None]
        # A weight of as many numbers as there are features need not be one of each.
        usual = FEATURE if site.is_share and own == [entries] else None
        found = []
        for i, (size, plate) in enumerate(zip(site.shape, site.plates, strict=True)):
            named = plate or next(given, None)
            name = named or usual or f"{site.name}_dim_{i}"
            count = len(coordinates.get(name, range(size)))
            if count != size and (name in self.coords or (plate is None and named)):
                raise ValueError(
                    f"dimension {name!r} has {count} names, and {site.name!r} has {size} entries "
                    "there"
                )
            found.append(name if count == size else f"{site.name}_dim_{i}")
        return found
