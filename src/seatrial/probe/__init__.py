"""What a workload imports to report its steps. Standard library only; torch is used when the workload has already imported it.

    from seatrial.probe import Probe
    probe = Probe()                                  # silent unless SEATRIAL_RUN_DIR is set
    for batch in probe.data(loader):
        with probe.step(samples=len(batch)):
            with probe.phase("fwd"): loss = model(batch)
            with probe.phase("bwd"): loss.backward()
            with probe.phase("step"): optimizer.step()
        probe.loss(loss)

A run that the harness asks to end gets a halt.json: `probe.data` then ends, as if there were no more batches, and `probe.halted` is true,
for loops that do not use it or use it repeatedly (`while not probe.halted: …`). Name the parts of the start-up by
`with probe.startup("model"): …` (process_group, model, ops_build, data, tokenise, compile). Report what the workload measures itself by
`probe.figure("ttft_p99_ms", 310.5, unit="ms", n=500)`, at any time; the last one counts.

In: the calls above, SEATRIAL_* variables and halt.json. Out: events_rank{r}.jsonl and heartbeat_rank{r}.jsonl (fields in
records.events), and stacks/rank{r}.txt at the signal of SEATRIAL_STACK_SIGNAL (USR2; `none` for a workload that needs it itself).
For the Hugging Face Trainer: `from seatrial.probe.hf import SeatrialCallback`; for Lightning: `from seatrial.probe.lightning import …`.
"""

from seatrial.probe.loop import Probe
from seatrial.probe.timeline import StepRecord

__all__ = ["Probe", "StepRecord"]
