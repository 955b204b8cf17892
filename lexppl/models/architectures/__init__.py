"""Which networks a system is made of: of tables, of images, of texts."""

from lexppl.models.architectures.architecture import Architecture
from lexppl.models.architectures.chosen import architecture_of, predictor_of
from lexppl.models.architectures.convolutional import ConvolutionalNetwork
from lexppl.models.architectures.images import (
    ExtraChannel,
    FlatImageArchitecture,
    Flattened,
    ImageArchitecture,
    flat_images,
    images,
)
from lexppl.models.architectures.table import TableArchitecture
from lexppl.models.architectures.texts import TextArchitecture, texts
from lexppl.models.architectures.torchvision_networks import TorchvisionNetwork
from lexppl.models.architectures.unet import UNet

__all__ = [
    "Architecture",
    "ConvolutionalNetwork",
    "ExtraChannel",
    "FlatImageArchitecture",
    "Flattened",
    "ImageArchitecture",
    "TableArchitecture",
    "TextArchitecture",
    "TorchvisionNetwork",
    "UNet",
    "architecture_of",
    "flat_images",
    "images",
    "predictor_of",
    "texts",
]
