"""The four systems of section 4.3 (Eqs. 28-36): a premise entails a hypothesis, contradicts it or neither."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paper._gru import GRU, TorchGRU, glorot_
from paper._pairs import LEARNT, Batch
from zerotail.torch import AdditiveAttention

# What weights the premise's states; the first takes the last state instead.
SYSTEMS = {"none": None, "logistic": "sigmoid", "soft": "softmax", "sparse": "sparsemax"}
LABELS = ("entailment", "neutral", "contradiction")


GRUS = {"text": GRU, "torch": TorchGRU}


class Network(nn.Module):
    """One of the `SYSTEMS`, on frozen `vectors` of words, of which a batch names those that it needs."""

    vectors: Tensor

    def __init__(self, vectors: Tensor, system: str, dim: int, gru: str, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.register_buffer("vectors", vectors, persistent=False)
        self.projection = nn.Linear(vectors.shape[1], dim, bias=False)
        self.learnt = nn.Parameter(torch.empty(LEARNT, dim))
        self.premise = GRUS[gru](dim)
        self.hypothesis = GRUS[gru](dim)
        weighting = SYSTEMS[system]
        self.attention = None if weighting is None else AdditiveAttention(dim, weighting=weighting)
        self.from_premise = nn.Linear(dim, dim)  # W^pu, b^u
        self.from_hypothesis = nn.Linear(dim, dim, bias=False)  # W^hu
        self.output = nn.Linear(dim, len(LABELS))
        layers = (self.projection, self.from_premise, self.from_hypothesis, self.output)
        glorot_([self.learnt, *(layer.weight for layer in layers)])
        nn.init.zeros_(self.from_premise.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The labels' scores (batch, 3), and the premise words' weights (batch, steps)."""
        table = torch.cat([self.learnt, self.projection(self.vectors[batch.words])])
        premise = self._dropped(F.embedding(batch.premise, table))
        hypothesis = self._dropped(F.embedding(batch.hypothesis, table))
        states = self.premise(premise, batch.premise_mask, premise.new_zeros(premise.shape[1:]))
        last = states[-1]
        end = self.hypothesis(hypothesis, batch.hypothesis_mask, last)[-1]
        weights = None
        if self.attention is not None:
            last, weights = self.attention(end, states.transpose(0, 1), batch.premise_mask.t())
        u = torch.tanh(self.from_premise(last) + self.from_hypothesis(end))
        return self.output(self._dropped(u)), weights

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)
