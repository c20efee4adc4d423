"""The functions of the PyTorch front end as modules."""

from __future__ import annotations

from typing import Any, NoReturn

from torch import Tensor, nn

from . import _check, functional


class _Module(nn.Module):
    def __prepare_scriptable__(self) -> NoReturn:
        """TorchScript asks for this first."""
        _check.not_scripted(type(self).__name__)


class Sparsemax(_Module):
    """Apply `sparsemax` along a dimension (Eq. 2): `nn.Softmax` with exact zeros.

    Parameters
    ----------
    dim : int, default -1
        The dimension that sums to one.

    Examples
    --------
    >>> Sparsemax(dim=-1)(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        return functional.sparsemax(input, self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class SparsemaxLoss(_Module):
    """Compute `sparsemax_loss` of scores and a target (Eqs. 20 and 26): `nn.CrossEntropyLoss` for sparsemax.

    Parameters
    ----------
    weight, ignore_index, reduction, label_smoothing
        As in `sparsemax_loss`. `weight` is a buffer: it moves with the module.

    Examples
    --------
    >>> SparsemaxLoss()(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([1]))
    tensor(0.5625)
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        _check.reduction(reduction)
        _check.label_smoothing(label_smoothing)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.sparsemax_loss(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        parts: dict[str, Any] = {"reduction": self.reduction}
        if self.ignore_index != -100:
            parts["ignore_index"] = self.ignore_index
        if self.label_smoothing:
            parts["label_smoothing"] = self.label_smoothing
        return ", ".join(f"{name}={value!r}" for name, value in parts.items())


class BinarySparsemaxLoss(_Module):
    """Compute `binary_sparsemax_loss` of scores and probabilities: `nn.BCEWithLogitsLoss` for sparsemax.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default "mean"
        As in `binary_sparsemax_loss`.

    Examples
    --------
    >>> BinarySparsemaxLoss()(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 1.0]))
    tensor(0.1562)
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        _check.reduction(reduction)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_sparsemax_loss(input, target, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"
