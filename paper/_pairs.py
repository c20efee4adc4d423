"""Sentence pairs as word numbers, and as batches of similar lengths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# The first rows of a batch's table of word vectors: learnt, where all others are projected.
UNKNOWN, START = 0, 1
LEARNT = 2
_WORD = re.compile(r"[^\W_]+")


def words(sentence: str) -> list[str]:
    """The runs of letters and digits, lower-cased; punctuation is dropped.

    >>> words("Two dogs aren't here.")
    ['two', 'dogs', 'aren', 't', 'here']
    """
    return _WORD.findall(sentence.lower())


def written(sentence: str) -> list[str]:
    """The same words as they are written."""
    return _WORD.findall(sentence)


class Ragged:
    """Lists of word numbers, end to end."""

    def __init__(self, lists: Iterable[Sequence[int]]) -> None:
        lists = list(lists)
        self.lengths = np.array([len(numbers) for numbers in lists], np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self.flat = np.fromiter((n for numbers in lists for n in numbers), np.int64, self.offsets[-1])

    def padded(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (steps, rows), UNKNOWN where a list has ended, and the mask of those that have not."""
        steps = np.arange(self.lengths[rows].max(initial=1))[:, None]
        mask = steps < self.lengths[rows]
        if not self.flat.size:
            return np.full(mask.shape, UNKNOWN), mask
        at = np.minimum(self.offsets[rows] + steps, self.flat.size - 1)
        return np.where(mask, self.flat[at], UNKNOWN), mask


class Batch(NamedTuple):
    words: Tensor  # rows of the vectors that the batch needs
    premise: Tensor  # (steps, batch): rows of the table [UNKNOWN, START, *words]
    premise_mask: Tensor
    hypothesis: Tensor
    hypothesis_mask: Tensor
    labels: Tensor


@dataclass
class Pairs:
    """Numbers are rows of the table [UNKNOWN, START, *all vectors]."""

    premises: Ragged
    hypotheses: Ragged
    labels: np.ndarray

    @classmethod
    def of(
        cls, premises: Iterable[str], hypotheses: Iterable[str], labels: Iterable[int], known: dict[str, int]
    ) -> Pairs:
        """`known` gives the row of a word's vector. A hypothesis begins with START."""

        def numbers(sentence: str) -> list[int]:
            return [known[word] + LEARNT if word in known else UNKNOWN for word in words(sentence)]

        return cls(
            Ragged(map(numbers, premises)),
            Ragged([START, *numbers(sentence)] for sentence in hypotheses),
            np.fromiter(labels, np.int64),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: np.ndarray) -> Batch:
        premise, premise_mask = self.premises.padded(rows)
        hypothesis, hypothesis_mask = self.hypotheses.padded(rows)
        used, inverse = np.unique(
            np.concatenate([[UNKNOWN, START], premise.ravel(), hypothesis.ravel()]), return_inverse=True
        )
        inverse = inverse[LEARNT:]
        parts = used[LEARNT:] - LEARNT, inverse[: premise.size].reshape(premise.shape), premise_mask
        rest = inverse[premise.size :].reshape(hypothesis.shape), hypothesis_mask, self.labels[rows]
        return Batch(*(torch.from_numpy(np.ascontiguousarray(part)) for part in (*parts, *rest)))

    def in_order(self, size: int) -> Iterator[np.ndarray]:
        """Every pair once, shortest first: for evaluation."""
        order = np.lexsort([self.hypotheses.lengths, self.premises.lengths])
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def shuffled(self, size: int, pool: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Every pair once, in batches of similar lengths: pools of `pool` batches are sorted, then cut."""
        order = rng.permutation(len(self))
        batches = []
        for start in range(0, len(order), size * pool):
            part = order[start : start + size * pool]
            part = part[np.lexsort([self.hypotheses.lengths[part], self.premises.lengths[part]])]
            batches += [part[first : first + size] for first in range(0, len(part), size)]
        return [batches[i] for i in rng.permutation(len(batches))]
