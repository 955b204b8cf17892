"""The explanation: a posterior of masks in ArviZ's layout."""

from lexppl.explanation.beside.image_geometry import with_images
from lexppl.explanation.explain import explain
from lexppl.explanation.layout.files import load_posterior, save_posterior
from lexppl.explanation.layout.importance_kind import mask_means
from lexppl.explanation.many_rows.explain_to_zarr import explain_to_zarr
from lexppl.explanation.many_rows.zarr_posterior import open_posterior
from lexppl.explanation.masks.plate_draws import systematic_resampling
from lexppl.explanation.reading.ranking import selection_table
from lexppl.explanation.reading.tidy import row_dict, tidy_frame

__all__ = [
    "explain",
    "explain_to_zarr",
    "load_posterior",
    "mask_means",
    "open_posterior",
    "row_dict",
    "save_posterior",
    "selection_table",
    "systematic_resampling",
    "tidy_frame",
    "with_images",
]
