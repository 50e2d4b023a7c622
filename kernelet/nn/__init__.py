"""Layers, optimizers, model files and data sets.

In:  tensors.
Out: classes whose attributes are the parameters and whose call is the formula.
"""

from kernelet.nn import datasets, optim, state
from kernelet.nn.checkpoints import load_checkpoint, save_checkpoint
from kernelet.nn.convolutional import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from kernelet.nn.linear import Embedding, Linear
from kernelet.nn.normalization import (
    BatchNorm,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)
from kernelet.nn.recurrent import LSTMCell

__all__ = [
    "BatchNorm",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Embedding",
    "GroupNorm",
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "Linear",
    "RMSNorm",
    "datasets",
    "load_checkpoint",
    "optim",
    "save_checkpoint",
    "state",
]
