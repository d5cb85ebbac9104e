"""A Core that builds quickly on PoCL, beside the one that builds as users do."""

from quick_builds import core as quick_core

__all__ = ["quick_core"]
