"""In front of the real mlflow, which the tests of tracking need: DeepSpeed loads it wherever it is installed, in its launchers and in every
rank, a second each, and uses it for tuning alone. Its Muon optimizer, which no test uses, loads torch's compiler: two seconds in each rank
under ZeRO. ZeRO 3 collects garbage several times, half a second each with all those modules."""

import gc
import sys
from types import ModuleType

for name, content in (("muon_optimizer", {"MuonWithAuxAdam": type("MuonWithAuxAdam", (), {})}), ("original_muon", {"muon_update": None})):
    module = ModuleType(f"deepspeed.runtime.zero.muon.{name}")
    vars(module).update(content)
    sys.modules[module.__name__] = module
gc.freeze()
raise ImportError("mlflow is left out where DeepSpeed is run")
