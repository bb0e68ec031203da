"""Filters of a run's packet list: words that a segment must all match."""

from __future__ import annotations

import difflib

import polars as pl

from analysis.captures import class_labels, is_a

FLAGS = ((2, "SYN"), (1, "FIN"), (4, "RST"), (8, "PSH"), (16, "ACK"), (32, "URG"), (64, "ECE"), (128, "CWR"))
_DIRECTIONS = {"data": 0, "ack": 1}
_STOP = frozenset({"a", "the", "of", "in", "out", "after", "before"})


class UnknownFilter(ValueError):
    """A word that no filter has; the message lists what is allowed."""


def words() -> list[str]:
    """Every word of a filter, apart from byte numbers. "ack" is the direction: nearly all segments have the flag."""
    flags = [name.lower() for _, name in FLAGS if name != "ACK"]
    classes = (word for _, label in class_labels() for word in label.lower().split() if word not in _STOP)
    return list(dict.fromkeys([*_DIRECTIONS, *classes, *flags]))


def parse(text: str) -> list[pl.Expr]:
    """Conditions on the columns of segments.parquet.

    Args:
        text: words separated by blanks: a direction (data, ack), a flag, a word of a class, or the number of a byte
            that the segment carries or acknowledges up to.

    Raises:
        UnknownFilter: none of these.
    """
    return [_condition(word) for word in text.lower().split()]


def _condition(word: str) -> pl.Expr:
    if word.isascii() and word.isdigit() and len(word) < 19:
        byte = int(word)
        carried = (pl.col("seq") <= byte) & (byte < pl.col("seq") + pl.col("payload"))
        return ((pl.col("dir") == 0) & carried) | ((pl.col("dir") == 1) & (pl.col("ack") == byte))
    if word in _DIRECTIONS:
        return pl.col("dir") == _DIRECTIONS[word]
    bits = sum(bit for bit, name in FLAGS if name.lower() == word)
    if bits:
        return pl.col("flags") & bits != 0
    classes = sum(bit for bit, label in class_labels() if word in label.lower().split())
    if classes:
        return is_a(classes)
    near = difflib.get_close_matches(word, words(), 1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    raise UnknownFilter(
        f"unknown filter '{word[:40]}'{hint} Use data, ack, a flag (syn), a class (retransmission) or a byte number."
    )
