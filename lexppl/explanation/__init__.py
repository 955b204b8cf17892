"""The explanation: a posterior of masks in ArviZ's layout."""

from lexppl.explanation.explain import explain, prior
from lexppl.explanation.explain_to_zarr import explain_to_zarr
from lexppl.explanation.posterior_files import load_posterior, open_posterior, save_posterior
from lexppl.explanation.reading.masks import mask_means
from lexppl.explanation.reading.modes import modes_of, with_modes
from lexppl.explanation.reading.tables import row_dict, selection_table, tidy_frame
from lexppl.explanation.sampler import draws, read_log_likelihood, read_mask, read_prediction

__all__ = [
    "draws",
    "explain",
    "explain_to_zarr",
    "load_posterior",
    "mask_means",
    "modes_of",
    "open_posterior",
    "prior",
    "read_log_likelihood",
    "read_mask",
    "read_prediction",
    "row_dict",
    "save_posterior",
    "selection_table",
    "tidy_frame",
    "with_modes",
]
