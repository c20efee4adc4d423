"""Documents of several topics, drawn at random: the simulation of section 4.1."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from zerotail import _check


def make_documents(
    n_train: int = 1200,
    n_test: int = 1000,
    *,
    n_labels: int = 10,
    length: float = 1000,
    mixture: str = "uniform",
    variant: str = "text",
    n_words: int | None = None,
    mean_labels: float = 1.0,
    random_state: Any = None,
) -> Any:
    """Draw documents whose words come from a mixture of topics, in proportions that are known (section 4.1).

    Needs scikit-learn, which `pip install "zerotail[datasets]"` brings. The number of a document's labels is
    Poisson, redrawn while it is 0 or exceeds `n_labels`; the labels are drawn from a multinomial, without
    repetition; the number of words is Poisson; each word is drawn from the mixture of its labels'
    multinomials. All multinomials are uniform numbers, normalised: the paper's text does not say, its
    authors' code does.

    Parameters
    ----------
    n_train, n_test : int
        Documents of each part of the split.
    n_labels : int, default 10
        The paper's K.
    length : float, default 1000
        Mean number of words.
    mixture : {"uniform", "random"}, default "uniform"
        The labels of a document have equal proportions, or random ones.
    variant : {"text", "code"}, default "text"
        Random proportions come from a flat Dirichlet distribution, as the paper's text has it, or are uniform
        numbers, normalised, as in its authors' code.
    n_words : int, optional
        Size of the vocabulary; `n_labels` if None, as in the paper.
    mean_labels : float, default 1.0
        The mean of the Poisson distribution of the number of labels, before anything is redrawn.
    random_state : int or numpy.random.Generator, optional
        Equal seeds draw equal documents.

    Returns
    -------
    sklearn.utils.Bunch
        `X` (documents, words), float64, the counts of words; `Y` (documents, labels), float64, the
        proportions, each row a distribution; `words` (labels, words), the multinomials of the labels;
        `feature_names`, `label_names`; the split as indices of rows, `train` and `test`; `DESCR`.

    Examples
    --------
    >>> documents = make_documents(3, 2, n_labels=4, length=100, random_state=0)
    >>> documents.X.shape
    (5, 4)
    >>> documents.Y.round(2)
    array([[0.33, 0.33, 0.33, 0.  ],
           [0.5 , 0.  , 0.5 , 0.  ],
           [0.5 , 0.5 , 0.  , 0.  ],
           [0.33, 0.33, 0.  , 0.33],
           [0.5 , 0.  , 0.  , 0.5 ]])
    """
    utils = _check.extra("sklearn.utils", "datasets", "make_documents")
    sizes = {"n_train": n_train, "n_test": n_test, "n_labels": n_labels}
    if n_words is not None:
        sizes["n_words"] = n_words
    for name, value in sizes.items():
        least = 0 if name in {"n_train", "n_test"} else 1
        if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < least:
            raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}")
    for name, number in {"length": length, "mean_labels": mean_labels}.items():
        if not 0 < number < np.inf:
            raise ValueError(f"{name} must be positive and finite; got {number!r}")
    if mixture not in {"uniform", "random"}:
        raise ValueError(f"mixture must be 'uniform' or 'random'; got {mixture!r}")
    if variant not in {"text", "code"}:
        raise ValueError(f"variant must be 'text' or 'code'; got {variant!r}")

    rng = np.random.default_rng(random_state)
    rows, vocabulary = n_train + n_test, n_labels if n_words is None else n_words
    priors = rng.uniform(size=n_labels)
    words = rng.uniform(size=(n_labels, vocabulary))
    words /= words.sum(axis=1, keepdims=True)

    count = _label_counts(rng, mean_labels, n_labels, rows)
    # The largest of log prior + Gumbel noise are draws without repetition.
    order = np.argsort(-(np.log(priors) + rng.gumbel(size=(rows, n_labels))), axis=1)
    rank = np.argsort(order, axis=1)
    on = rank < count[:, None]
    if mixture == "uniform":
        weights = np.ones((rows, n_labels))
    elif variant == "text":
        weights = rng.exponential(size=(rows, n_labels))  # normalised: a flat Dirichlet distribution
    else:
        weights = rng.uniform(size=(rows, n_labels))
    Y = np.where(on, weights, 0.0)
    Y /= Y.sum(axis=1, keepdims=True)

    chances = Y @ words
    chances /= chances.sum(axis=1, keepdims=True)
    X = rng.multinomial(rng.poisson(length, rows), chances).astype(np.float64)
    return utils.Bunch(
        X=X,
        Y=Y,
        words=words,
        feature_names=[f"word {i}" for i in range(vocabulary)],
        label_names=[f"label {k}" for k in range(n_labels)],
        train=np.arange(n_train),
        test=np.arange(n_train, rows),
        DESCR=(
            f"Documents of about {length} words, drawn from mixtures of {n_labels} labels over "
            f"{vocabulary} words; "
            f"{mixture} mixtures, {variant} variant; {n_train} for training, {n_test} for testing."
        ),
    )


def _label_counts(rng: np.random.Generator, mean: float, most: int, rows: int) -> Any:
    """Poisson numbers from 1 to `most`."""
    sizes = np.arange(1, most + 1)
    logs = sizes * np.log(mean) - np.cumsum(np.log(sizes))  # of the chances, times e^mean
    chances = np.exp(logs - logs.max())
    accepted = np.log(chances.sum()) + logs.max() - mean
    if accepted < np.log(0.01):  # redrawing would take long, or for ever
        return rng.choice(sizes, rows, p=chances / chances.sum())
    count = rng.poisson(mean, rows)
    while (redraw := (count == 0) | (count > most)).any():
        count[redraw] = rng.poisson(mean, int(redraw.sum()))
    return count
