"""Layers, optimizers, model files and data sets.

In:  tensors.
Out: classes whose attributes are the parameters and whose call is the formula.
"""

from kernelet.frontend.arguments import check_arguments
from kernelet.nn import datasets, optim, state
from kernelet.nn.attention import MultiheadAttention
from kernelet.nn.checkpoints import load_checkpoint, save_checkpoint
from kernelet.nn.convolutional import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from kernelet.nn.dropout import ChannelDropout, Dropout, Dropout1d, Dropout2d, Dropout3d
from kernelet.nn.linear import Bilinear, Embedding, Linear
from kernelet.nn.loading import DataLoader
from kernelet.nn.normalization import (
    BatchNorm,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)
from kernelet.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from kernelet.nn.summaries import summary

__all__ = [
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "ChannelDropout",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DataLoader",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "Embedding",
    "GRU",
    "GRUCell",
    "GroupNorm",
    "InstanceNorm",
    "LSTM",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "Linear",
    "MultiheadAttention",
    "RMSNorm",
    "RNN",
    "RNNCell",
    "datasets",
    "load_checkpoint",
    "optim",
    "save_checkpoint",
    "state",
    "summary",
]

# Layers, optimizers and schedulers check their arguments as tensors do.
_NAMED = (*globals().values(), *vars(optim).values(), *vars(optim.lr_scheduler).values())
for _owner in {owner for named in _NAMED if isinstance(named, type) for owner in named.__mro__}:
    if _owner.__module__.startswith("kernelet.nn."):
        check_arguments(_owner)
