"""Links of every page resolve, files it names exist, every page is reachable, and no page names a machine or a registry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import DOCS, ROOT, Page, Span, all_pages, name_of, names_a_test, page_at, parse

INDEX = DOCS / "README.md"
FIRST = (ROOT / "README.md", INDEX)
OUTSIDE = (
    "arxiv.org",
    "doi.org",
    "docs.nvidia.com",
    "docs.pytorch.org",
    "github.com",
    "huggingface.co",
    "semver.org",
    "www.deepspeed.ai",
    "www.openslr.org",
)
"""Hosts that pages may link to."""
# Without folders that only programs create.
FOLDERS = tuple(sorted({path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."} - {"outputs", "build", "dist"}))
CODE_IN = (ROOT, ROOT / "src" / "seatrial", ROOT / "src")
"""`src/seatrial/judge/cross_run_criteria.py`, `judge/cross_run_criteria.py` and `seatrial_workloads/dummy/train.py` all name a file."""
_CODE = re.compile(r"[\w.*-]+(?:/[\w.*-]+)+\.(?:py|toml)")
_OURS = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*")
_MACHINE = re.compile(r"(?<![\w./~>}:-])/(?:home|root|Users|work|workspace|mnt|media|opt|srv|scratch|shared|nfs)/[\w.-]+")
_REGISTRY = re.compile(r"--(?:extra-)?index-url|\bpypi\.org|\b(?:artifactory|nexus|registry|pypi|mirrors?)\.[\w-]+\.\w+", re.IGNORECASE)
EXAMPLES = ("/opt/venv", "/root/.triton")
"""A placeholder for any environment, and a folder in a message of Triton."""
PAGES = all_pages()

of_each_page = pytest.mark.parametrize("path", PAGES, ids=name_of)


@of_each_page
def test_links_and_pictures_lead_somewhere(path: Path) -> None:
    page = page_at(path)
    assert [f"line {link.line}: {why}" for link in (*page.links, *page.pictures) if (why := wrong_with_link(path, link.text))] == []


@of_each_page
def test_files_named_in_a_page_are_there(path: Path) -> None:
    written = {block.title for block in page_at(path).blocks}
    named = [(span, name) for span, name in _files_named(page_at(path)) if name.partition("::")[0] not in written]
    assert [f"line {span.line}: {name}" for span, name in named if not exists(name, path)] == []


@of_each_page
def test_a_page_names_neither_a_machine_nor_a_registry(path: Path) -> None:
    assert machines_and_registries(path.read_text()) == []


def test_the_index_has_every_page_of_the_docs_once() -> None:
    targets = [_target(INDEX, link.text) for link in page_at(INDEX).links]
    listed = [target for target in targets if target.suffix == ".md" and DOCS in target.parents]
    assert sorted(map(name_of, listed)) == sorted(name_of(path) for path in PAGES if DOCS in path.parents and path != INDEX)


def test_every_page_is_reached_from_the_readme() -> None:
    reached, ahead = set(), [FIRST[0]]
    while ahead:
        path = ahead.pop()
        if path in PAGES and path not in reached:
            reached.add(path)
            ahead += [_target(path, link.text) for link in page_at(path).links if not urlsplit(link.text).scheme]
    assert sorted(name_of(path) for path in PAGES if DOCS in path.parents and path not in reached) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("docs/files.md", ""),
        ("docs/files.md#the-campaigns-folder", ""),
        ("#nothing", "there is no heading"),
        ("docs/nothing.md", "there is no"),
        ("docs/files.md#nothing", "there is no heading"),
        ("src/seatrial/core/paths.py", ""),
        ("/docs/files.md", "not relative"),
        ("../README.md", "leads out of the repository"),
        ("https://arxiv.org/abs/1", ""),
        ("https://example.org/", "not among"),
        ("mailto:a@example.org", "not https"),
    ],
)
def test_links_are_checked(link: str, problem: str) -> None:
    why = wrong_with_link(ROOT / "README.md", link)
    assert problem in why if problem else not why


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /tmp, /etc/hosts, /dev/shm and ~/hosts/out", []),
        ("OUT/work/x, a/home/b, https://github.com/home/x, file:///my/configs", []),
        ("cd /work/main", ["/work/main"]),
        ("`/home/me/x`", ["/home/me"]),
        ("pip install --index-url X", ["--index-url"]),
        ("`plan/registry.py` or from registry.example.org/a and mirror.example.org:5000/b", ["registry.example.org", "mirror.example.org"]),
    ],
)
def test_machines_and_registries_are_found(text: str, found: list[str]) -> None:
    assert machines_and_registries(text) == found


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("src/seatrial/core/paths.py", True),
        ("cli/main.py", True),
        ("seatrial_workloads/dummy/settings.py", True),
        ("src/seatrial/records/signatures/*.toml", True),
        ("tests/docs/test_links.py::test_files_are_looked_up", True),
        ("tests/docs/test_links.py::test_nothing", False),
        ("src/seatrial/nothing.py", False),
        ("src/seatrial/nothing_*.py", False),
    ],
)
def test_files_are_looked_up(name: str, there: bool) -> None:
    ((_, file),) = _files_named(parse(f"`{name}`"))
    assert exists(file, ROOT / "README.md") is there


def test_other_inline_code_is_ignored() -> None:
    assert (
        list(_files_named(parse("`train.py` `OUT/summary.md` `nodes/HOST/launcher.log` `outputs/monday` `seatrial run plans/x.yaml`")))
        == []
    )


def wrong_with_link(path: Path, link: str) -> str:
    """Why it does not resolve; empty where it does. Nothing is fetched."""
    parts = urlsplit(link)
    if parts.scheme:
        if parts.scheme != "https":
            return f"{link} is not https"
        return "" if parts.hostname in OUTSIDE else f"{parts.hostname} is not among the hosts that pages link to"
    if link.startswith("/"):
        return f"{link} is not relative"
    target = _target(path, link)
    if ROOT not in (target, *target.parents):
        return f"{link} leads out of the repository"
    if not target.exists():
        return f"there is no {name_of(target)}"
    if "#" in link and target.suffix == ".md" and unquote(parts.fragment) not in page_at(target).anchors:
        return f"there is no heading #{parts.fragment} in {name_of(target)}"
    return ""


def machines_and_registries(text: str) -> list[str]:
    return [found.group() for pattern in (_MACHINE, _REGISTRY) for found in pattern.finditer(text) if found.group() not in EXAMPLES]


def exists(name: str, path: Path) -> bool:
    """From the root, from the folders of the code, or from the page's own folder; `*` matches any. For a test also the function."""
    if "::" in name:
        return names_a_test(name)
    return any(next(folder.glob(name), None) for folder in (*CODE_IN, path.parent))


def _files_named(page: Page) -> Iterator[tuple[Span, str]]:
    """Inline code that can only be a file or folder of the repository."""
    for span in page.code:
        name = span.text.partition("::")[0]
        if _CODE.fullmatch(name) or _OURS.fullmatch(name):
            yield span, span.text.rstrip("/")


def _target(path: Path, link: str) -> Path:
    """The file of a relative link."""
    file = unquote(urlsplit(link).path)
    return (path.parent / file).resolve() if file else path
