"""Activation functions of neural networks.

In:  tensors.
Out: expressions in the functions of `functions.py`.

At a kink the slope is the one that PyTorch documents: relu, relu6 and abs have slope 0 at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, Self

from kernelet.frontend.arguments import Positive
from kernelet.frontend.functions import Functions


class Activations(Functions):
    """relu and its many relatives."""

    __slots__ = ()

    def sequential(self, layers: Sequence[Callable[[Self], Self]]) -> Self:
        """The result of each layer given to the next.

        >>> from kernelet import Tensor
        >>> Tensor([-1.0, 2.0]).sequential([Tensor.relu, Tensor.exp2]).tolist()
        [1.0, 4.0]
        """
        result = self
        for layer in layers:
            result = layer(result)
        return result

    def relu(self) -> Self:
        """``np.maximum(x, 0)``; the slope at 0 is 0."""
        return self.le(0).where(0, self)

    def relu6(self) -> Self:
        """``np.clip(x, 0, 6)``."""
        return self.hardtanh(0, 6)

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """``np.clip(x, min_val, max_val)``, with slope 0 at both ends."""
        limited = self.le(min_val).where(min_val, self)
        return self.ge(max_val).where(max_val, limited)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """``np.where(x > 0, x, negative_slope * x)``."""
        return (self > 0).where(self, self * negative_slope)

    def elu(self, alpha: float = 1.0) -> Self:
        """``np.where(x > 0, x, alpha * np.expm1(x))``."""
        return (self > 0).where(self, self.expm1() * alpha)

    def celu(self, alpha: float = 1.0) -> Self:
        """``np.where(x > 0, x, alpha * np.expm1(x / alpha))``."""
        return (self > 0).where(self, (self / alpha).expm1() * alpha)

    def selu(self, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Self:
        """``gamma * elu(x, alpha)``; mean 0 and variance 1 are kept from layer to layer."""
        return self.elu(alpha) * gamma

    def sigmoid(self) -> Self:
        """``1 / (1 + np.exp(-x))``."""
        wide = self._widened()
        found = ((-wide).exp() + 1).reciprocal()._known_as("sigmoid", wide)
        return found.cast(self._floating().dtype)

    def logsigmoid(self) -> Self:
        """``np.log(sigmoid(x))`` without loss."""
        return -(-self).softplus()

    def softplus(self, beta: Positive = 1.0) -> Self:
        """``np.log(1 + np.exp(beta * x)) / beta``."""
        scaled = self._floating() * beta
        grown = scaled.logaddexp(scaled._constant(0))
        return grown._known_as("softplus", scaled) * (1 / beta)

    def softsign(self) -> Self:
        """``x / (1 + np.abs(x))``."""
        return self / (self.abs() + 1)

    def silu(self) -> Self:
        """``x * sigmoid(x)``, also called swish."""
        return self * self.sigmoid()

    def mish(self) -> Self:
        """``x * np.tanh(softplus(x))``."""
        return self * self.softplus().tanh()

    def gelu(self, approximate: Literal["tanh", "none"] = "tanh") -> Self:
        """x times the probability that a normal variable is below x.

        The formula in tanh by default; "none" takes the exact one in erf.
        """
        if approximate == "none":
            return self * 0.5 * ((self * math.sqrt(0.5)).erf() + 1)
        # (1 + tanh(z)) / 2 is sigmoid(2 z), which keeps its digits where tanh comes near -1.
        doubled = (self + self * self * self * 0.044715) * (2 * math.sqrt(2 / math.pi))
        return self * doubled.sigmoid()

    def quick_gelu(self) -> Self:
        """``x * sigmoid(1.702 * x)``."""
        return self * (self * 1.702).sigmoid()

    def hardsigmoid(self, alpha: Positive = 1 / 6, beta: float = 0.5) -> Self:
        """``np.clip(alpha * x + beta, 0, 1)``."""
        return (self.hardtanh(-beta / alpha, (1 - beta) / alpha) + beta / alpha) * alpha

    def hardswish(self) -> Self:
        """``x * hardsigmoid(x)``."""
        return self * self.hardsigmoid()

    def tanhshrink(self) -> Self:
        """``x - np.tanh(x)``."""
        return self - self.tanh()

    def softshrink(self, lambd: float = 0.5) -> Self:
        """x moved towards 0 by `lambd`, and 0 within it."""
        moved = (self > 0).where(self - lambd, self + lambd)
        return self.abs().le(lambd).where(0, moved)

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """x, but 0 where it is within `lambd` of 0."""
        return self.abs().le(lambd).where(0, self)

    def threshold(self, threshold: float, value: float) -> Self:
        """``np.where(x <= threshold, value, x)``."""
        return self.le(threshold).where(value, self)

    swish = silu
