"""A training whose lines are all meant for a careless page; it fails where it is told to."""

import sys
import time

LINE = "<img src=x onerror=window.__xss=1></script><script>window.__xss=2</script>{{7*7}}\u2028window.__xss=3"

for step in range(40):
    time.sleep(0.005)
    print(f"iter {step}: loss {4.0 / (step + 1):.3f}, time 5.00ms", flush=True)
    if step % 10 == 0:
        print(LINE, flush=True)
if "svg" in sys.argv[1]:
    raise RuntimeError(LINE + sys.argv[1])
