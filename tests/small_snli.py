"""A small SNLI and a small GloVe, in the originals' formats, of sentences whose label shows."""

from __future__ import annotations

import json
import random
from pathlib import Path

COLORS = ("red", "blue", "green", "pink", "brown", "black", "white", "grey")
NOUNS = ("dog", "cat", "horse", "camel", "boy", "girl", "man", "woman", "bird", "fish")
FILLERS = ("a", "the", "in", "on", "near", "with", "and", "of", "grass", "park", "while", "there")
LABELS = ("entailment", "neutral", "contradiction")
DIM = 11


def pair(rng: random.Random) -> tuple[str, str, str]:
    """The premise has one coloured thing; the hypothesis gives it that colour, none, or another."""
    color, other = rng.sample(COLORS, 2)
    noun, label = rng.choice(NOUNS), rng.choice(LABELS)
    before, after = (rng.choices(FILLERS, k=rng.randint(1, 5)) for _ in range(2))
    premise = " ".join([*before, color, noun, *after]).capitalize() + "."
    said = {"entailment": [color], "neutral": [], "contradiction": [other]}[label]
    return premise, " ".join(["The", *said, noun]) + ".", label


def record(rng: random.Random, number: int) -> dict[str, str]:
    premise, hypothesis, label = pair(rng)
    return {"gold_label": label, "sentence1": premise, "sentence2": hypothesis, "pairID": f"{number}"}


def write(folder: Path, train: int = 200, dev: int = 60, test: int = 50) -> Path:
    rng = random.Random(0)
    (folder / "snli_1.0").mkdir(parents=True)
    (folder / "glove").mkdir()
    for part, count in (("train", train), ("dev", dev), ("test", test)):
        lines = [json.dumps(record(rng, number)) + "\n" for number in range(count)]
        (folder / "snli_1.0" / f"snli_1.0_{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    words = [*COLORS, *NOUNS, *FILLERS, "unused", "The"]
    vectors = [" ".join([word, *(f"{rng.gauss(0, 1):.5f}" for _ in range(DIM))]) for word in words]
    (folder / "glove" / "glove.small.txt").write_text("\n".join(vectors) + "\n", encoding="utf-8")
    return folder
