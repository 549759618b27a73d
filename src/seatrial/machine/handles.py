"""Room for many open files: what this process may have open at once, raised as far as the system lets us."""

from __future__ import annotations

import resource
import sys


def make_room(wanted: int) -> int:
    """Let this process have `wanted` files open, or as many as the hard limit allows; returns how many that are now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        soft = max(soft, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
