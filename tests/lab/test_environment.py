"""Where a result was computed."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from natgrad.lab import _environment as module
from natgrad.lab._environment import environment, revision


def test_the_environment_names_versions_and_machine() -> None:
    found = environment()
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__
    assert found["numpy"] == np.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert {"natgrad", "scipy", "matplotlib", "cpu", "platform"} <= found.keys()
    assert all(value is None or isinstance(value, int | str) for value in found.values())


def test_the_processor_is_read_or_guessed(tmp_path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Abacus 3000 @ 2 Hz\nmodel name\t: other\n")
    assert module._cpu(info) == "Abacus 3000 @ 2 Hz"
    assert module._cpu(tmp_path / "missing") in (platform.processor(), platform.machine())


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert module._version("no-such-package-anywhere") is None


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A repository with one committed package."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "src" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (tmp_path / ".gitignore").write_text("venv/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return folder


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_revision_of_clean_sources(package) -> None:
    head = git(package, "rev-parse", "HEAD")
    assert len(head) == 40
    assert revision(package) == head
    (package.parent.parent / "notes.txt").write_text("outside the package, changes nothing")
    assert revision(package) == head


@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_changed_and_new_sources_are_said(package, name) -> None:
    (package / name).write_text("x = 1\n")
    assert revision(package) == git(package, "rev-parse", "HEAD") + "+changes"


def test_a_package_installed_inside_a_repository_has_no_revision(package) -> None:
    installed = package.parent.parent / "venv" / "natgrad"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert revision(installed) is None


def test_no_repository_no_commit_and_no_git_are_no_errors(tmp_path, package, monkeypatch) -> None:
    assert revision(tmp_path / "missing") is None
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    (empty / "__init__.py").write_text("")
    git(empty, "add", ".")
    assert revision(empty) is None
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert revision(package) is None


def test_variables_of_a_git_hook_do_not_mislead(package, tmp_path_factory, monkeypatch) -> None:
    head = git(package, "rev-parse", "HEAD")
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert revision(package) == head


def test_a_slow_git_is_waited_for_and_never_makes_the_revision_null(
    package, tmp_path, monkeypatch
) -> None:
    """A git that hangs, or that cannot look at the files, still leaves a sentence."""
    head, real = git(package, "rev-parse", "HEAD"), shutil.which("git")
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "git"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def behave(line: str) -> None:
        fake.write_text(f'#!/bin/sh\n{line}\nexec {real} "$@"\n')
        fake.chmod(0o755)

    assert module._PATIENCE >= 60
    behave("sleep 0.2")
    assert revision(package) == head
    behave('case "$*" in *status*) exit 1;; esac')
    assert (
        revision(package) == f"{head}+unknown: git cannot tell whether the sources differ from it"
    )
    monkeypatch.setattr(module, "_PATIENCE", 0.5)
    behave("exec sleep 60")
    assert revision(package) == "unknown: git gave no answer within 0.5 s"
