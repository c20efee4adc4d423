"""Data sets of the paper."""

from __future__ import annotations
