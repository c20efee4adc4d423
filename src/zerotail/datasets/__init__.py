"""Data sets of the paper: downloaded or read from a folder, and returned as `sklearn.utils.Bunch`.

`pip install "zerotail[datasets]"` brings what the loaders need; `python -m zerotail.datasets` lists, fetches
and describes them.
"""

from __future__ import annotations

from zerotail.datasets.documents import make_documents
from zerotail.datasets.glove import load_glove
from zerotail.datasets.mulan import fetch_mulan
from zerotail.datasets.rcv1 import fetch_rcv1
from zerotail.datasets.snli import fetch_snli

__all__ = ["fetch_mulan", "fetch_rcv1", "fetch_snli", "load_glove", "make_documents"]
