"""How many multiply-accumulates one update needs: convolutions and linear layers, exactly.

Sums of products of layer sizes, and nothing is run. What is counted is the formulation with shared
encodings: φ_o forward and backward on what a loss looks at, φ_m forward, and the heads. Backward is
one product for the weights and one for the inputs of each layer, except where no one asks for the
latter: at the pixels, and at the actor's (detached) input.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sibe.config.schema import RunConfig
from sibe.methods.sibe import SIBEConfig
from sibe.nn.convolution import KERNEL
from sibe.nn.encoder import conv_size
from sibe.nn.late_encoder import HIDDEN, POOLED


def linear_macs(sizes: Sequence[int]) -> int:
    """Return the MACs of one row through linear layers ``sizes[0] -> … -> sizes[-1]``."""
    return sum(fan_in * fan_out for fan_in, fan_out in pairwise(sizes))


def conv_macs(config: RunConfig) -> list[int]:
    """Return the MACs of one image (a frame with late fusion) in each convolution."""
    enc, late = config.encoder, config.encoder.fusion == "late"
    channels, macs = 3 if late else 3 * config.env.stack, []
    layers = [(stride, enc.filters) for stride in enc.strides] + [(1, POOLED)] * late
    for layer, (_, filters) in enumerate(layers, 1):
        strides = [stride for stride, _ in layers[:layer]]
        height, width = conv_size(config.env.size, strides)
        macs.append(height * width * KERNEL**2 * channels * filters)
        channels = filters
    return macs


def encoder_macs(config: RunConfig) -> tuple[int, int]:
    """Return the MACs of one image (a frame with late fusion), forward and backward."""
    convs, enc = conv_macs(config), config.encoder
    height, width = conv_size(config.env.size, enc.strides)
    forward = sum(convs) + height * width * enc.filters * enc.features
    backward = 2 * forward - convs[0]
    if enc.fusion == "late":  # one place of each max-pooled filter has a gradient
        backward -= 2 * (convs[-1] - KERNEL**2 * enc.filters * POOLED)
    return forward, backward


def update_macs(config: RunConfig, action_dim: int) -> dict[str, float]:
    """Return the MACs that an update needs, by part, averaged over the schedule of the actor.

    Args:
        config: the run; its method is "sibe" or "none".
        action_dim: A.
    """
    sac, rows = config.sac, _sac_rows(config)
    forward, backward = encoder_macs(config)
    (learned, looked_up, target), (states, later) = _images(config), _states(config)
    combined = 0
    if config.encoder.fusion == "late":
        features = config.encoder.features
        combined = linear_macs((config.env.stack * (POOLED + features), HIDDEN, features))
    critic = 2 * linear_macs(_sizes(config, config.encoder.features + action_dim, 1))
    actor = linear_macs(_sizes(config, config.encoder.features, 2 * action_dim))
    first_layer = config.encoder.features * sac.hidden
    actor_step = 3 * actor - first_layer + 2 * critic
    return {
        "encoder forward": (learned + looked_up + target) * forward + (states + later) * combined,
        "encoder backward": learned * backward + 2 * states * combined,
        "method": _sibe_macs(config, action_dim) if config.method == "sibe" else 0,
        "critic": rows * (actor + 4 * critic),  # next action, target, and forward and backward
        "actor": rows * actor_step / sac.actor_every,
    }


def _sizes(config: RunConfig, inputs: int, outputs: int) -> tuple[int, ...]:
    return (inputs, config.sac.hidden, config.sac.hidden, outputs)


def _sac_rows(config: RunConfig) -> int:
    """Return the number of transitions SAC learns from."""
    sac = config.sac
    return sac.batch * (sac.chunk * sac.method_batch if sac.transitions == "all" else 1)


def _images(config: RunConfig) -> tuple[int, int, int]:
    """Return how many images φ_o encodes for a loss, φ_o for the next action, and φ_m."""
    sac, rows = config.sac, _sac_rows(config)
    chunks = sac.batch * sac.method_batch
    if config.encoder.fusion == "late":  # the states of a chunk share frames
        shared = (config.env.stack - 1) * chunks
        states, later = _states(config)
        return states + shared, 0, later + shared
    if config.method == "none":
        return rows, rows if sac.transitions == "first" else 0, rows
    # For chunks longer than n, φ_o(s_{k+n}) is among what the method looks at.
    looked_up = sac.batch if sac.transitions == "first" and sac.chunk <= sac.n_step else 0
    states, later = _states(config)
    return states, looked_up, later


def _states(config: RunConfig) -> tuple[int, int]:
    """Return how many states φ_o and φ_m encode for the losses."""
    sac = config.sac
    chunks = sac.batch * sac.method_batch
    ahead = sac.chunk if config.method == "none" else sac.chunk + sac.n_step - 1
    return sac.chunk * chunks, ahead * chunks


def _sibe_macs(config: RunConfig, action_dim: int) -> int:
    """Return the MACs of the bottleneck: forward and backward online, forward for the targets."""
    method: SIBEConfig = config.method_config
    sac = config.sac
    latent, hidden, joint = method.latent, method.hidden, method.latent + action_dim
    steps, chunks = sac.chunk, sac.batch * sac.method_batch
    rows = steps * chunks
    encode = linear_macs((config.encoder.features, hidden, 2 * latent))
    predict = linear_macs((latent, hidden, latent))
    transition = linear_macs((joint, hidden, hidden, 2 * latent))
    project = linear_macs((joint, latent))
    online = encode + predict + project + latent**2
    # Without compression the divergence is only watched.
    compressed = transition * (3 if method.alpha else 1)
    pairs = rows * rows if method.negatives == "pooled" else steps * chunks**2
    # Keys take no gradient: one product forward, one back.
    return rows * (3 * online + compressed + encode + predict) + 2 * pairs * latent
