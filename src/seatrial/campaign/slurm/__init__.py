"""Runs as Slurm jobs: the loops that submit and follow jobs, and the program that runs in each.

job_loop         one job per run                    allocation_loop   one job for many runs
queue            polling, waiting, cancelling       outcomes          Slurm's state to an outcome
program          in the job of one run              signals           Slurm's warning and TERM, in the job
../slurm_allocation_program.py: in the job of many runs; it imports the campaign's own loop, which imports this package.
"""

# Job scripts name these modules: a job that was submitted under another name fails before its run begins (`No module named …` in job.log),
# and `seatrial run PLAN` submits it anew.
RUN_PROGRAM = "seatrial.campaign.slurm.program"
ALLOCATION_PROGRAM = "seatrial.campaign.slurm_allocation_program"
