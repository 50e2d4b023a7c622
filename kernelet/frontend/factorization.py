"""Systems of equations and factors of matrices.

In:  tensors (*batch, rows, columns).
Out: `Factorization`: solve, inverse, triangular systems, cholesky, qr, svd, newton_schulz.

A factorization takes one column a step, and every step is the same program: what is done moves out
of the way of what is left. 16-bit floats are factored in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self, TypeVar

from kernelet.base.errors import ArgumentError
from kernelet.frontend.linalg import LinearAlgebra
from kernelet.frontend.primitives import known, show_shape
from kernelet.frontend.sorting import Sorting

# How many derivatives, of derivatives, are exact.
_TURNS = 2
_SWEEPS = 4

QrMode = Literal["reduced", "complete"]
T = TypeVar("T", bound="Factorization")


class Factorization(LinearAlgebra, Sorting):
    """Solving, and products that equal a matrix."""

    __slots__ = ()

    # ---- systems of equations ----

    def solve(self, other: Self) -> Self:
        """The x with ``self @ x == other``, by `qr`; ``numpy.linalg.solve(self, other)``.

        `other` is a matrix, or a vector for each matrix. A singular matrix gives no numbers.
        """
        self._need_square()
        if other.ndim == 1 or other.shape == self.shape[:-1]:
            return self.solve(other.unsqueeze(-1)).squeeze(-1)
        _check_rows(self, other)
        orthogonal, upper = self._widened().detach().qr()
        inverse = upper.mT._lower_inverse().mT @ orthogonal.mT
        return self._solved(inverse, other)

    def inverse(self) -> Self:
        """The matrix with ``x @ x.inverse() == 1``, by `solve`; ``numpy.linalg.inv(x)``."""
        self._need_square()
        return self.solve(self._identity(known(self.shape[-1]))._broadcast_to(self.shape))

    def solve_triangular(
        self, other: Self, *, upper: bool, left: bool = True, unitriangular: bool = False
    ) -> Self:
        """The x with ``self @ x == other``, of the upper or lower triangle of this matrix.

        With `left` false ``x @ self == other``; `unitriangular` takes the diagonal for ones.
        """
        self._need_square()
        if not left:
            turned = self.mT.solve_triangular(
                other.mT, upper=not upper, unitriangular=unitriangular
            )
            return turned.mT
        _check_rows(self, other)
        edge = int(unitriangular)
        matrix = self._floating().triu(edge) if upper else self._floating().tril(-edge)
        if unitriangular:
            matrix = matrix + self._identity(known(self.shape[-1]))
        lower = matrix._widened().detach()
        inverse = lower.mT._lower_inverse().mT if upper else lower._lower_inverse()
        return matrix._solved(inverse, other)

    def _solved(self, inverse: Self, other: Self) -> Self:
        """The x with ``self @ x == other`` from the inverse of the values of this matrix.

        Each turn gives back precision that the inverse has lost, and makes one more derivative exact.
        """
        matrix, sides = self._widened(), other._widened()
        found = inverse @ sides
        for _ in range(_TURNS):
            found = found + inverse @ (sides - matrix @ found)
        return found.cast(self._common_dtype(self._floating(), other._floating()))

    def _lower_inverse(self) -> Self:
        """The inverse of a lower triangular matrix, from those of ever greater diagonal blocks.

        [A 0; B C] -> [1/A 0; -1/C B 1/A  1/C], for all blocks of one size at once.
        """
        *batch, size, _ = self.shape
        length, block = known(size), 1
        whole = 1 << max(length - 1, 0).bit_length()
        padded = self.pad_to(*batch, whole, whole) + self._identity(whole, length)
        blocks = padded.diagonal(0, -2, -1).reciprocal()._reshape((*batch, whole, 1, 1))
        while block < whole:
            count = whole // (2 * block)
            pairs = blocks._reshape((*batch, count, 2, block, block))
            first, second = (each.squeeze(-3) for each in pairs.split(1, -3))
            cells = padded._reshape((*batch, count, 2, block, count, 2, block))
            below = cells[..., 1, :, :, 0, :].diagonal(0, -4, -2).movedim(-1, -3)
            corner = -(second @ below @ first)
            top = first.cat(first._constant(0), dim=-1)
            blocks = top.cat(corner.cat(second, dim=-1), dim=-2).contiguous()
            block *= 2
        return blocks._reshape((*batch, whole, whole)).shrink_to(*self.shape)

    def _identity(self, size: int, start: int = 0) -> Self:
        """Ones on the diagonal from `start` on."""
        row = self._arange(size)
        ones = row.eq(row.unsqueeze(1)) & row.ge(start)
        return ones.cast(self._floating().dtype)

    # ---- factors ----

    def cholesky(self, upper: bool = False) -> Self:
        """The lower triangular L with ``L @ L.mT == x``; ``numpy.linalg.cholesky(x)``.

        The lower triangle of x is read; NaN where x is not positive definite. With `upper` the
        transpose of L.
        """
        self._need_square()
        wide = self._widened()
        matrix = wide.tril().detach()
        matrix = matrix + matrix.tril(-1).mT
        *batch, size, _ = matrix.shape
        length = known(size)
        state = matrix.pad_to(*batch, size, 2 * length)  # what is left, and the columns found
        for _ in range(length):
            left, found = state.split(length, -1)
            column = left[..., :1] / left[..., :1, :1].sqrt()
            rest = (left - column * column.mT)[..., 1:, 1:].pad_to(*left.shape)
            state = rest.cat(found[..., 1:], column, dim=-1).contiguous()
        # Each column begins with its diagonal element: rows one longer than wide move it there.
        rows = state[..., length:].mT.pad_to(*batch, length, length + 1).flatten(-2)
        factor = rows[..., : length * length]._reshape(matrix.shape).mT
        # A derivative is symmetric, as the matrix is.
        factor = factor._known_as("identity", factor._root_of((wide + wide.mT) * 0.5))
        return (factor.mT if upper else factor).cast(self._floating().dtype)

    def _root_of(self, matrix: Self) -> Self:
        """The L with ``L @ L.mT == matrix``, which this is already but for its derivatives.

        L (1 + E) L.mT = (L (1 + F)) (L (1 + F)).mT for small E, F its lower half.
        """
        start = self.detach()
        inverse, found = start._lower_inverse(), start
        for _ in range(_TURNS):
            missing = inverse @ (matrix - found @ found.mT) @ inverse.mT
            found = found + start @ _upper_half(missing).mT
        return found

    def qr(self, mode: QrMode = "reduced") -> tuple[Self, Self]:
        """Q with orthonormal columns and the upper triangular R, ``Q @ R == x``.

        ``numpy.linalg.qr(x, mode)``, by Householder's reflections; signs are LAPACK's.
        """
        self._need_ndim(2)
        rows, columns = self.shape[-2:]
        orthogonal, upper = self._widened().detach()._reflections(mode == "complete")
        if rows <= columns or mode == "reduced":
            orthogonal, upper = self._widened()._derived_qr(orthogonal, upper)
        kind = self._floating().dtype
        return orthogonal.cast(kind), upper.cast(kind)

    def _reflections(self, is_complete: bool) -> tuple[Self, Self]:
        *batch, rows, columns = (known(size) for size in self.shape)
        steps, width = min(rows, columns), rows + columns
        identity = self._identity(rows)._broadcast_to((*batch, rows, rows))
        # The rows that are left, zeros below them, then those found; a column less to the left.
        state = self.cat(identity, dim=-1).pad_to(*batch, rows + steps, width)
        for _ in range(steps):
            left, found = state.split([rows, steps], -2)
            left = left._reflected()
            nothing = left[..., :1, :]._constant(0)
            state = left[..., 1:, :].cat(nothing, found[..., 1:, :], left[..., :1, :], dim=-2)
            state = state.roll(-1, -1).contiguous()
        left, found = state.roll(steps, -1).split([rows, steps], -2)
        if is_complete:
            found = found.cat(left[..., : rows - steps, :], dim=-2)
        return found[..., columns:].mT, found[..., :columns].triu()

    def _derived_qr(self, orthogonal: Self, upper: Self) -> tuple[Self, Self]:
        """The factors, with derivatives.

        Q (1 + W) (1 + T) R = x for small W and T where ``W + T`` is known: T is its upper part.
        """
        size = orthogonal.shape[-1]
        square, first = upper[..., :size], self[..., :size]
        inverse = square.mT._lower_inverse().mT
        turned, root = orthogonal, square
        for _ in range(_TURNS):
            missing = (first - turned @ root) @ inverse
            crossed = orthogonal.mT @ missing
            both = crossed + crossed.mT + turned.mT @ turned - self._identity(known(size))
            share = _upper_half(both)
            turned, root = turned + missing - orthogonal @ share, root + share @ square
        rest = turned.mT @ self[..., size:]
        return (
            orthogonal._known_as("identity", turned),
            upper._known_as("identity", root.cat(rest, dim=-1)),
        )

    def _reflected(self) -> Self:
        """Reflected so that the first column is 0 below its first element."""
        column = self[..., :1]
        head, rest = column[..., :1, :], column[..., 1:, :]
        square = rest.square().sum(-2, True)
        is_done = square.eq(0)
        norm = is_done.where(1, head.square() + square).sqrt()
        normal = (head + (head < 0).where(-norm, norm)).cat(rest, dim=-2)
        factor = is_done.where(0, (norm * (norm + head.abs())).reciprocal())
        return self - normal * (factor * (normal.mT @ self))

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """U, the singular values S from the greatest down, and V.mT: ``U @ diag(S) @ V.mT == x``.

        ``numpy.linalg.svd(x, full_matrices)``, by Jacobi's rotations of pairs of columns. With
        `full_matrices` U and V are square; those have no derivatives unless x is square too.
        """
        self._need_ndim(2)
        rows, columns = (known(size) for size in self.shape[-2:])
        if rows < columns:
            left, values, right = self.mT.svd(full_matrices)
            return right.mT, values, left.mT
        wide, kind = self._widened(), self._floating().dtype
        turned, right = wide.detach()._with_orthogonal_columns()
        # Columns that are orthogonal already: R is diagonal, and Q is whole where columns are 0.
        left, upper = turned.qr("complete" if full_matrices else "reduced")
        signed = upper.diagonal(0, -2, -1)
        signs = (signed < 0).where(-1, signed._constant(1))
        left = left * signs.pad_to(*signs.shape[:-1], left.shape[-1], value=1).unsqueeze(-2)
        values = signed * signs
        found = wide._derived_svd(left[..., :columns], values, right)
        left, values, right = found if left.shape[-1] == columns else (left, found[1], right)
        return left.cast(kind), values.cast(kind), right.mT.cast(kind)

    def _with_orthogonal_columns(self) -> tuple[Self, Self]:
        """``x @ V`` for an orthogonal V that makes its columns orthogonal, the longest first; V."""
        *batch, rows, columns = (known(size) for size in self.shape)
        half = (columns + 1) // 2
        identity = self._identity(columns)._broadcast_to((*batch, columns, columns))
        state = self.cat(identity, dim=-2).pad_to(*batch, rows + columns, 2 * half)
        sweeps = _SWEEPS + columns.bit_length() + self.dtype.itemsize // 4
        for _ in range(sweeps * (2 * half - 1) if columns > 1 else 0):
            state = state._rotated(half, rows).contiguous()
            first, second = state.split(half, -1)
            # Each column but the first moves on, so that every two meet once a sweep.
            end = max(half - 1, 1)
            state = first[..., :1].cat(
                second[..., :1], first[..., 1:end], second[..., 1:], first[..., end:], dim=-1
            )
        state = state[..., :columns]
        lengths = state[..., :rows, :].square().sum(-2, True)
        state = state.take_along_dim(lengths.argsort(-1, descending=True), -1)
        return state[..., :rows, :], state[..., rows:, :]

    def _rotated(self, half: int, rows: int) -> Self:
        """With each column and the one `half` further on turned: their `rows` become orthogonal."""
        left, right = self[..., :rows, :].split(half, -1)
        twice = (left * right).sum(-2, True) * 2
        gap = (right.square() - left.square()).sum(-2, True)
        size = gap.abs() + (gap.square() + twice.square()).sqrt()
        tangent = size.eq(0).where(0, (gap < 0).where(-twice, twice) / size)
        cosine = (tangent.square() + 1).rsqrt().contiguous()
        sine = cosine * tangent
        return self * cosine.repeat(1, 2) + self.roll(half, -1) * (-sine).cat(sine, dim=-1)

    def _derived_svd(self, left: Self, values: Self, right: Self) -> tuple[Self, Self, Self]:
        """The thin factors, with derivatives.

        U (1 + P) (S + dS) (1 - Q) V.mT = x for small antisymmetric P and Q: for each two values
        there are two equations. Equal values have no derivative of their vectors; it is 0 here.
        """
        row, column = values.unsqueeze(-1), values.unsqueeze(-2)
        gap = (column - row) * (column + row)
        gaps = gap.eq(0).where(0, gap.eq(0).where(1, gap).reciprocal())
        inverse = values.eq(0).where(0, values.eq(0).where(1, values).reciprocal()).unsqueeze(-2)
        one = self._identity(known(values.shape[-1]))
        first, second = left, right
        for _ in range(_TURNS):
            long = (first.mT @ first - one) * 0.5, (second.mT @ second - one) * 0.5
            core = first.mT @ self @ second
            core = core - long[0] * column - row * long[1]
            outside = self @ second * inverse - first
            turns = [
                (core * b + core.mT * a) * gaps - each
                for (a, b), each in zip(((row, column), (column, row)), long, strict=True)
            ]
            first = first + left @ turns[0] + outside - left @ (left.mT @ outside)
            second = second + right @ turns[1]
        found = (first.mT @ self @ second).diagonal(0, -2, -1)
        return (
            left._known_as("identity", first),
            values._known_as("identity", found),
            right._known_as("identity", second),
        )

    def newton_schulz(self, steps: int, params: Sequence[float], eps: float = 1e-7) -> Self:
        """An odd polynomial of the singular values, `steps` times, after division by the norm.

        ``x = p[0] * x + p[1] * (x @ x.mT) @ x + ...``: (1.5, -0.5) leads to the nearest orthogonal
        matrix.
        """
        self._need_ndim(2)
        self._need(params, "at least one factor in params", ArgumentError)
        if known(self.shape[-2]) > known(self.shape[-1]):
            return self.mT.newton_schulz(steps, params, eps).mT
        found = self / (self.square().sum((-2, -1), keepdim=True).sqrt() + eps)
        for _ in range(steps):
            gram, total = found @ found.mT, found * params[-1]
            for factor in reversed(params[:-1]):
                total = gram @ total + found * factor
            found = total
        return found

    # ---- checks ----

    def _need_square(self) -> None:
        self._need(self.ndim > 1 and self.shape[-1] == self.shape[-2], "square matrices")


def _upper_half(matrix: T) -> T:
    """The upper triangular part of which a symmetric matrix is the sum with its transpose."""
    return (matrix.triu() + matrix.triu(1)) * 0.5


def _check_rows(matrix: Factorization, other: Factorization) -> None:
    """ShapeError unless both have as many rows."""
    fits = other.ndim > 1 and other.shape[-2] == matrix.shape[-1]
    other._need(fits, f"a matrix with the rows of {show_shape(matrix.shape)}")
