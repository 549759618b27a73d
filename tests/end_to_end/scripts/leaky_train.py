"""A user's script that prints secrets: its arguments, its environment, and an address with a password. Fails on request."""

from __future__ import annotations

import os
import sys
import time

print("arguments:", " ".join(sys.argv[1:]))
for step in range(30):
    time.sleep(0.004)
    print(f"step {step} loss {1 / (step + 1):.3f}")
if "fail=1" in sys.argv:
    held = [os.environ[name] for name in ("HF_TOKEN", "DB_PASSWORD", "WANDB_API_KEY")]
    print("Traceback (most recent call last):")
    print(f"RuntimeError: 401 for {held[0]} and {held[2]} at {os.environ['TRACKING_URI']}, password {held[1]} refused", file=sys.stderr)
    sys.exit(1)
