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
    # As a job does that prints its environment and the command it could not run.
    for name, value in os.environ.items():
        if "hunter" in value and name != "SALT":
            print(f"{name}={value}", file=sys.stderr)
    print("curl", " ".join(sys.argv[1:]), file=sys.stderr)
    print("Traceback (most recent call last):")
    print(f"RuntimeError: 401 for {held[0]} and {held[2]} at {os.environ['TRACKING_URI']}, password {held[1]} refused", file=sys.stderr)
    sys.exit(1)
