"""Text as bytes: a toy which shows that the bottleneck takes any sequence with an encoder.

    python examples/byte_sequences.py

The text is records such as ``river 4821``: each word is followed by one of two others, the numbers
are random. The next record's word is thus worth log 8 - log 2 = 1.39 nats, and nothing else is.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from linear_probe import r_squared
from torch import Tensor, nn
from torch.nn import functional as F

from sibe import SequentialBottleneck, SIBEConfig
from sibe.nn.ema import frozen_copy, update_ema

WORDS = ["river", "stone", "cloud", "ember", "frost", "grove", "marsh", "ocean"]
RECORD = len("river 4821\n")
RECORDS, HELD_OUT = 6_000, 2_000
INFORMATION = math.log(len(WORDS)) - math.log(2)


def write_text(seed: int) -> bytes:
    """Return ``RECORDS`` records of ``RECORD`` bytes."""
    rng = np.random.default_rng(seed)
    # Every word has two successors and two predecessors, so all are equally frequent.
    first = rng.permutation(len(WORDS))
    successors = np.stack((first, np.roll(first, 1)), axis=1)
    word = 0
    lines = []
    for _ in range(RECORDS):
        lines.append(f"{WORDS[word]} {rng.integers(10_000):04}\n")
        word = rng.choice(successors[word])
    return "".join(lines).encode()


def read_text(text: bytes) -> tuple[Tensor, Tensor, Tensor]:
    """Return the bytes of each record ``[N, RECORD]``, and one-hot its word and first digit."""
    records = torch.tensor(list(text)).view(-1, RECORD)
    words = torch.tensor([WORDS.index(line.split()[0]) for line in text.decode().splitlines()])
    digits = records[:, RECORD - 5] - ord("0")
    return records, F.one_hot(words, len(WORDS)).float(), F.one_hot(digits, 10).float()


def main(updates: int = 300, seed: int = 0) -> dict[str, float]:
    """Print and return what z knows of held-out records, and the bound."""
    torch.manual_seed(seed)
    records, words, digits = read_text(write_text(seed))
    training, held_out = records[:-HELD_OUT], records[-HELD_OUT:]

    encoder = nn.Sequential(
        nn.Embedding(256, 8), nn.Flatten(-2), nn.Linear(8 * RECORD, 64), nn.LayerNorm(64)
    )
    target_encoder = frozen_copy(encoder)
    bottleneck = SequentialBottleneck(64, 0, SIBEConfig(alpha=0.001, latent=8, hidden=128))
    optimizer = torch.optim.Adam([*encoder.parameters(), *bottleneck.parameters()], lr=2e-3)
    for _ in range(updates):
        t = torch.randint(len(training) - 1, (256,))
        c, c_next = encoder(training[t]), target_encoder(training[t + 1])
        loss = bottleneck(c, None, c_next).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bottleneck.update_targets()
        update_ema(target_encoder, encoder, tau=0.05)

    with torch.no_grad():
        c = encoder(held_out)
        out = bottleneck(c[:-1], None, target_encoder(held_out)[1:])
        z = bottleneck.encode(c)
    result = {
        "R² word": r_squared(z, words[-HELD_OUT:]).mean().item(),
        "R² digit": r_squared(z, digits[-HELD_OUT:]).mean().item(),
        "bound": out.metrics["mutual_information_bound"].item(),
        "closed form": INFORMATION,
    }
    print("  ".join(f"{name} {value:.2f}" for name, value in result.items()))
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
