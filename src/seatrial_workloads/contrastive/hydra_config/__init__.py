"""The trainer by Hydra's keys: configs/, checked after compose and mapped onto the flat Settings; `train` is the program."""
