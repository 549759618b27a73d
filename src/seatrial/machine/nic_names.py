"""Which network interfaces NCCL takes by NCCL_SOCKET_IFNAME, and Gloo by GLOO_SOCKET_IFNAME. Pure: a text and the host's interfaces in,
names out.

NCCL: `eth,ib` are beginnings of names, `=eth0,eth1` whole names; a `^` before either takes all others: `^lo,docker`, `^=eth0`. A port
behind a colon belongs to adapters and is passed over. Gloo knows whole names only, several of them with commas between.
"""

from __future__ import annotations

from collections.abc import Iterable


def taken_by_nccl(grammar: str, interfaces: Iterable[str]) -> list[str]:
    """Those of `interfaces` that the text means, in their own order, of which NCCL's bootstrap takes the first; all for an empty text."""
    rest = grammar.strip()
    leaves_out, rest = rest.startswith("^"), rest.removeprefix("^")
    whole, rest = rest.startswith("="), rest.removeprefix("=")
    words = [name for word in rest.split(",") if (name := word.partition(":")[0].strip())]
    if not words:
        return list(interfaces)
    return [name for name in interfaces if any(name == word if whole else name.startswith(word) for word in words) != leaves_out]


def taken_by_gloo(text: str, interfaces: Iterable[str]) -> list[str]:
    """Those of `interfaces` that Gloo takes."""
    known = set(interfaces)
    return [word for word in gloo_names(text) if word in known]


def gloo_names(text: str) -> list[str]:
    """The interfaces Gloo looks for."""
    return [word for part in text.split(",") if (word := part.strip())]


def only_name(grammar: str) -> str:
    """The one plain name that NCCL's text gives, which is the same to Gloo; empty where it gives several, a rule, or none."""
    rest = grammar.strip().removeprefix("=").partition(":")[0].strip()
    return "" if not rest or rest.startswith("^") or "," in rest else rest


def interface_variables(grammar: str) -> dict[str, str]:
    """What `place.interface` sets, name → value. Gloo knows no grammar: it is told where one name is all there is to it."""
    if not grammar:
        return {}
    name = only_name(grammar)
    return {"NCCL_SOCKET_IFNAME": grammar, **({"GLOO_SOCKET_IFNAME": name} if name else {})}
