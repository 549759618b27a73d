"""The trainer with Hydra keys: configs/, checked after composing and mapped onto the flat Settings; `train` is the program."""
