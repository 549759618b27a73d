"""`seatrial prepare librispeech` under the name and with the flags that the Stage 1 procedure uses.

python runbooks/stage1/scripts/preprocess_librispeech_16k.py \
    --input-root data/LibriSpeech/LibriSpeech --output-root data/LibriSpeech/LibriSpeech_16k_trim --target-sr 16000 --trim \
    --manifest-path data/LibriSpeech/LibriSpeech_16k_trim/manifest_16k_trim.tsv --workers 16 --log-every 1000
"""

from __future__ import annotations

import sys

try:
    from seatrial_workloads.librispeech.prepare import main
except ModuleNotFoundError as error:
    sys.exit(f"preprocess_librispeech_16k.py: {error} for {sys.executable}; activate the environment that seatrial is installed in")

if __name__ == "__main__":
    sys.exit(main())
