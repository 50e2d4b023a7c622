"""Losses: how far a prediction is from its target.

In:  predictions and targets.
Out: `Losses`; every method takes `reduction`, which is "mean", "sum" or "none".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

from kernelet.base.dtype import Scalar
from kernelet.base.errors import DTypeError
from kernelet.frontend.activations import Activations
from kernelet.frontend.arguments import Share
from kernelet.frontend.primitives import show_shape
from kernelet.frontend.reduction import Reduction
from kernelet.graph.ops import Op

LossReduction = Literal["mean", "sum", "none"]
KlMode = LossReduction | Literal["batchmean"]


class Losses(Reduction, Activations):
    """Losses over classes, probabilities and numbers."""

    __slots__ = ()

    def _loss(
        self, target: Self | Scalar, formula: Callable[[Self, Self], Self], reduction: LossReduction
    ) -> Self:
        """`formula` of predictions and targets, in at least 32 bits, rounded once at the end."""
        left, right = self._floating()._matched(target)
        each = formula(left._widened(), right._widened())
        return each._reduced(reduction).cast(left.dtype)

    def _reduced(self, reduction: LossReduction) -> Self:
        if reduction == "none":
            return self
        return self.mean() if reduction == "mean" else self.sum()

    # ---- numbers ----

    def mse_loss(self, target: Self | Scalar, reduction: LossReduction = "mean") -> Self:
        """``(x - target)**2``."""
        return self._loss(target, lambda x, y: (x - y).square(), reduction)

    def l1_loss(self, target: Self | Scalar, reduction: LossReduction = "mean") -> Self:
        """``abs(x - target)``."""
        return self._loss(target, lambda x, y: (x - y).abs(), reduction)

    def smooth_l1_loss(
        self, target: Self | Scalar, reduction: LossReduction = "mean", beta: float = 1.0
    ) -> Self:
        """``d**2 / (2 * beta)`` where d = abs(x - target) is below `beta`, else d - beta / 2."""
        if beta == 0:
            return self.l1_loss(target, reduction)
        return self._loss(target, lambda x, y: x._huber(y, beta) / beta, reduction)

    def huber_loss(
        self, target: Self | Scalar, reduction: LossReduction = "mean", delta: float = 1.0
    ) -> Self:
        """`delta` times `smooth_l1_loss` with beta = `delta`."""
        return self._loss(target, lambda x, y: x._huber(y, delta), reduction)

    def _huber(self, target: Self, delta: float) -> Self:
        away = (self - target).abs()
        near = (away < delta).where(away, delta)
        # near**2 / 2 + delta * (away - near), which has no square of an infinite distance.
        return near * (away - near * 0.5)

    def hinge_loss(
        self, target: Self | Scalar, reduction: LossReduction = "mean", margin: float = 1.0
    ) -> Self:
        """``np.maximum(margin - target * x, 0)`` for targets of -1 and 1 (Crammer, Singer 2001)."""
        return self._loss(target, lambda x, y: (margin - x * y).relu(), reduction)

    # ---- probabilities ----

    def binary_crossentropy(self, target: Self | Scalar, reduction: LossReduction = "mean") -> Self:
        """``-(target * log(x) + (1 - target) * log(1 - x))``; a log counts as at least -100."""
        return self._loss(
            target, lambda x, y: -y * x._bounded_log() - (1 - y) * (1 - x)._bounded_log(), reduction
        )

    def _bounded_log(self) -> Self:
        # Below exp(-100) the slope is cut off as well, so that 0 gives no infinite gradient.
        tiny = self < 3.720075976020836e-44
        return tiny.where(-100.0, tiny.where(1.0, self).log())

    def binary_crossentropy_logits(
        self, target: Self, reduction: LossReduction = "mean", pos_weight: Self | None = None
    ) -> Self:
        """`binary_crossentropy` of ``sigmoid(x)``, from x itself, without overflow."""

        def formula(x: Self, y: Self) -> Self:
            tail = (-x).softplus()
            tail = tail if pos_weight is None else tail * (1 + (pos_weight - 1) * y)
            return (1 - y) * x + tail

        return self._loss(target, formula, reduction)

    def kl_div(self, target: Self, reduction: KlMode = "mean", log_target: bool = False) -> Self:
        """``target * (log(target) - x)`` for log-probabilities x; 0 where the target is 0.

        "batchmean" divides the sum by the first axis.
        """

        def formula(x: Self, y: Self) -> Self:
            if log_target:
                return y.exp() * (y - x)
            some = y > 0
            return some.where(y * (some.where(y, 1.0).log() - x), 0.0)

        if reduction == "batchmean":
            total = self._loss(target, formula, "sum")
            return total / self._operand(self.shape[0], total.dtype)
        return self._loss(target, formula, reduction)

    # ---- classes ----

    def cross_entropy(
        self,
        target: Self,
        reduction: LossReduction = "mean",
        label_smoothing: Share = 0.0,
        *,
        weight: Self | None = None,
        ignore_index: int = -100,
    ) -> Self:
        """``-sum(target * log_softmax(x, 1))``; `target` has class numbers or probabilities.

        The classes are along axis 1, or along the only axis.
        """
        axis = min(1, self.ndim - 1)
        logs = self._widened().log_softmax(axis)
        # Each class of a smoothed target has its own weight.
        weighted = logs if weight is None else logs * weight._along(axis, self.ndim)
        if target.dtype.is_float and target.shape == self.shape:
            wanted = target._widened() * (1 - label_smoothing)
            if label_smoothing:
                wanted = wanted + label_smoothing / self._operand(self.shape[axis], logs.dtype)
            found = -(wanted * weighted).sum(axis)._reduced(reduction)
        else:
            # Of the logarithms only the chosen ones are computed.
            each, share = logs._class_losses(target, weight, ignore_index)
            if label_smoothing:
                spread = target.ne(ignore_index).where(-weighted.mean(axis), 0.0)
                each = each * (1 - label_smoothing) + spread * label_smoothing
            found = each._averaged(share, reduction)
        return found.cast(self._floating().dtype)

    def sparse_categorical_crossentropy(
        self,
        target: Self,
        ignore_index: int = -1,
        label_smoothing: Share = 0.0,
        reduction: LossReduction = "mean",
    ) -> Self:
        """`cross_entropy` for class numbers along the last axis of x."""
        self._check_classes(target, self.ndim - 1)
        classes = self.movedim(-1, min(1, self.ndim - 1))
        return classes.cross_entropy(target, reduction, label_smoothing, ignore_index=ignore_index)

    def nll_loss(
        self,
        target: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: LossReduction = "mean",
    ) -> Self:
        """``-x[target]`` for log-probabilities x with the classes along axis 1."""
        wide = self._widened()
        each, share = wide._class_losses(target, weight, ignore_index)
        return each._averaged(share, reduction).cast(self._floating().dtype)

    def _class_losses(
        self, target: Self, weight: Self | None, ignore_index: int | None
    ) -> tuple[Self, Self]:
        """Minus the element of each target's class, times how much it counts; and the latter."""
        axis = min(1, self.ndim - 1)
        self._check_classes(target, axis)
        chosen = self._positions(axis) == target.unsqueeze(axis)
        each = -chosen.where(self, 0.0)._fold(Op.ADD, (axis,), False)
        share = each._constant(1)
        if weight is not None:
            weights = weight.cast(self.dtype)._along(axis, self.ndim)
            share = chosen.where(weights, 0.0)._fold(Op.ADD, (axis,), False)
        if ignore_index is not None:
            share = target.ne(ignore_index).where(share, 0.0)
        # What has no share does not count, even if it is NaN.
        return share.ne(0).where(each * share, 0.0), share

    def _averaged(self, share: Self, reduction: LossReduction) -> Self:
        return self.sum() / share.sum() if reduction == "mean" else self._reduced(reduction)

    def _check_classes(self, target: Self, axis: int) -> None:
        """An error unless `target` has a class number for each row along `axis`."""
        self._need_ndim(1)
        rest = (*self.shape[:axis], *self.shape[axis + 1 :])
        target._need(target.shape == rest, f"{show_shape(rest)}: classes are along axis {axis}")
        wanted = "class numbers, or probabilities of the same shape to cross_entropy"
        target._need(not target.dtype.is_float, wanted, DTypeError)

    def _along(self, axis: int, ndim: int) -> Self:
        """This vector along `axis` of a tensor with `ndim` axes."""
        self._need_ndim(1, 1)
        return self._reshape((self.shape[0], *(1,) * (ndim - axis - 1)))
