from __future__ import annotations

import byte_sequences
import pytest


def test_z_knows_the_word_and_not_the_digits() -> None:
    result = byte_sequences.main()
    assert result["R² word"] > 0.7
    assert result["R² digit"] < 0.1
    assert 0.7 < result["bound"] < result["closed form"]


def test_every_word_has_two_successors() -> None:
    records, words, digits = byte_sequences.read_text(byte_sequences.write_text(seed=1))
    assert bytes(records[0].tolist())[:6] == b"river "
    follows = words[:-1].T @ words[1:] > 0
    assert follows.sum(0).tolist() == follows.sum(1).tolist() == [2] * len(byte_sequences.WORDS)
    assert digits.mean(0).tolist() == pytest.approx([0.1] * 10, abs=0.02)
