"""Differential privacy: clipping of updates, and noise in the ring."""

from secemb_shared.privacy.clip import clip_each_to_steps, clip_to_steps
from secemb_shared.privacy.gaussian import add_noise, draw
from secemb_shared.privacy.mechanism import Mechanism

__all__ = ["Mechanism", "add_noise", "clip_each_to_steps", "clip_to_steps", "draw"]
