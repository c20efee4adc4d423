"""SNLI and GloVe as section 4.3 uses them: numbers of words, and one vector for each word."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from paper._pairs import Pairs, words
from zerotail.datasets import fetch_snli, load_glove


@dataclass(frozen=True)
class Data:
    vectors: Tensor
    known: dict[str, int]  # the row of a word's vector
    parts: dict[str, Pairs]
    coverage: (
        float  # percent of the training part's words, counted as often as they occur, that have a vector
    )
    digest: str


@lru_cache(maxsize=1)
def load(limit: int = 0) -> Data:
    """The pairs of every part, the first `limit` if it is not 0, and the vectors of all their words."""
    texts = {}
    for part in ("train", "dev", "test"):
        pairs = fetch_snli(part)
        texts[part] = (pairs.X[: limit or None], pairs.Y[: limit or None])
    vocabulary = sorted(
        {word for X, _ in texts.values() for pair in X for text in pair for word in words(text)}
    )
    glove = load_glove(None, vocabulary)
    known = {word: row for row, word in enumerate(glove.words)}
    parts = {
        part: Pairs.of([premise for premise, _ in X], [hypothesis for _, hypothesis in X], Y, known)
        for part, (X, Y) in texts.items()
    }
    digest = hashlib.sha256(json.dumps([[X, Y.tolist()] for X, Y in texts.values()]).encode())
    digest.update(json.dumps(glove.words).encode())
    digest.update(glove.vectors)
    training = parts["train"]
    total = sum(len(numbers.flat) for numbers in (training.premises, training.hypotheses)) - len(training)
    unknown = sum(int((numbers.flat == 0).sum()) for numbers in (training.premises, training.hypotheses))
    return Data(
        torch.from_numpy(glove.vectors), known, parts, 100 - 100 * unknown / total, digest.hexdigest()[:16]
    )
