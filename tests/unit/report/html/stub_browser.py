"""A program that speaks as a headless browser does over descriptors 3 and 4, and goes wrong where it is asked to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PDF = "JVBERi0xLjQK"
PROGRAM = """#!{python}
import json, os, pathlib, select, subprocess, sys, time
answers = {answers}
folder = pathlib.Path({folder!r})
(folder / "argv.json").write_text(json.dumps(sys.argv[1:]))
questions = []
if {ends_at_once}:
    sys.exit("No usable sandbox!")
if {has_child}:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (folder / "child").write_text(str(child.pid))
buffer = b""
while True:
    came = os.read(3, 65536)
    if not came:
        break
    buffer += came
    while b"\\0" in buffer:
        line, _, buffer = buffer.partition(b"\\0")
        question = json.loads(line)
        questions.append(question)
        (folder / "questions.json").write_text(json.dumps(questions))
        if question["method"] == {silent_at!r}:
            time.sleep(600)
        loaded = b'{{"method": "Page.loadEventFired"}}\\0'
        # The empty page of a new tab is loaded too.
        event = loaded if question["method"] in ("Page.enable", *([] if {loads_late} else ["Page.navigate"])) else b""
        answer = answers.get(question["method"], {{"result": {{}}}})
        text = b"no json\\0" + event + json.dumps({{"id": question["id"], **answer}}).encode() + b"\\0"
        for at in range(0, len(text), 7):
            os.write(4, text[at : at + 7])
        if {loads_late} and question["method"] == "Page.navigate":
            (folder / "hurried").write_text(str(bool(select.select([3], [], [], 0.5)[0])))
            os.write(4, loaded)
"""


class StubBrowser:
    """The program in `folder`, and what it was asked."""

    def __init__(
        self,
        folder: Path,
        *,
        silent_at: str = "",
        ends_at_once: bool = False,
        has_child: bool = False,
        loads_late: bool = False,
        **answers: Any,
    ) -> None:
        self._folder = folder
        told = {
            "Target.createTarget": {"result": {"targetId": "t"}},
            "Target.attachToTarget": {"result": {"sessionId": "s"}},
            "Runtime.evaluate": {"result": {"result": {"value": []}}},
            "Page.printToPDF": {"result": {"data": PDF}},
            **{name.replace("_", "."): answer for name, answer in answers.items()},
        }
        text = PROGRAM.format(
            python=sys.executable,
            answers=told,
            folder=str(folder),
            silent_at=silent_at,
            ends_at_once=ends_at_once,
            has_child=has_child,
            loads_late=loads_late,
        )
        self.program = folder / "chromium"
        self.program.write_text(text)
        self.program.chmod(0o755)

    @property
    def argv(self) -> list[str]:
        return [str(word) for word in json.loads((self._folder / "argv.json").read_text())]

    @property
    def questions(self) -> dict[str, dict[str, Any]]:
        """By method, what came with it."""
        return {asked["method"]: asked["params"] for asked in json.loads((self._folder / "questions.json").read_text())}

    @property
    def was_hurried(self) -> bool:
        """Whether more was asked before the page was loaded; told by one that loads late."""
        return (self._folder / "hurried").read_text() == "True"

    @property
    def child_pid(self) -> int:
        return int((self._folder / "child").read_text())
