"""Files that somebody else may have written: each is read, or refused in one sentence."""

import json
from pathlib import Path

import pytest

from natgrad.errors import InvalidInputError, NatgradError
from natgrad.lab._store import config_file
from natgrad.lab._store.folder import RunFolder
from natgrad.lab._store.reading import read_json, read_toml
from natgrad.lab._store.store import CorruptError, decode
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import canonical
from natgrad.lab.report import write_report
from tests.lab.run_folders import Toy, one_picture, write_run

DEEP = {
    "lists": "[" * 100_000 + "]" * 100_000,
    "tables": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "unclosed": "[" * 100_000,
    "not that deep": "[" * 200 + "]" * 200,
}
BROKEN = {
    "a number beyond": "[1e999]",
    "a long number": "[" + "9" * 400 + "]",
    "a longer number": "[" + "9" * 5000 + "]",
    "no number": "[NaN]",
    "half a character": '["\\ud800"]',
    "no JSON": "{",
    "nothing": "",
}


@pytest.mark.parametrize("text", (DEEP | BROKEN).values(), ids=(DEEP | BROKEN).keys())
def test_json_that_cannot_be_used_is_a_sentence(text, tmp_path) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"report\.json is broken: ") as caught:
        read_json(tmp_path / "report.json")
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(InvalidInputError, match="is broken"):
        RunFolder(tmp_path).report()


@pytest.mark.parametrize(
    "text",
    [
        "[config]\nx = " + DEEP["lists"],
        "[config]\nx = " + DEEP["not that deep"],
        "[config]\nx = " + "{a = " * 50_000 + "1" + "}" * 50_000,
        "[config]\n" + "a." * 400 + "a = 1",
        "[config" + ".a" * 400 + "]\nx = 1",
        "x = " + "9" * 5000,
    ],
    ids=["lists", "not that deep", "tables", "dotted", "headers", "a long number"],
)
def test_toml_that_cannot_be_used_is_a_sentence(text, tmp_path) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(InvalidInputError, match=r"config\.toml cannot be read as a config: "):
        read_toml(tmp_path / "config.toml")
    with pytest.raises(InvalidInputError, match="cannot be read as a config"):
        RunFolder(tmp_path).config(Toy)


@pytest.mark.parametrize("name", ["report.json", "config.toml", "failures.json", "../verify.json"])
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_the_page_says_which_file_is_too_deep(name, text, tmp_path) -> None:
    folder = write_run(tmp_path).path
    (folder / name).write_text(text if name.endswith("json") else f"[config]\nx = {text}")
    page = write_report(tmp_path).read_text()
    assert "nested more than 32 deep" in page or "broken" in page or "cannot be read" in page


def test_a_stored_result_with_a_deep_header_is_corrupt() -> None:
    inner = json.dumps({"__metadata__": {"natgrad": DEEP["lists"]}}).encode()
    with pytest.raises(CorruptError, match="cannot be read"):
        decode(len(inner).to_bytes(8, "little") + inner)


def deep_config() -> Toy:
    value: object = ()
    for _ in range(100_000):
        value = (value,)
    return Toy(depths=value)  # type: ignore[arg-type]


def test_a_config_that_is_nested_too_deeply_is_refused() -> None:
    for write in (canonical, config_file.dump):
        with pytest.raises(InvalidInputError, match="nested too deeply"):
            write(deep_config())


POISON = [None, True, 1e300, "text", [], ["a", 1], {"a": {"b": [1]}}, "\x00"]


def test_a_report_with_one_value_changed_is_shown_or_refused(tmp_path: Path) -> None:
    """Every value of a report in turn, and those of its first claim."""
    picture = {"figure.png": one_picture()["figure.png"]}
    folder = write_run(tmp_path, pictures=picture, arrays=Arrays(), command=[]).path
    whole = json.loads((folder / "report.json").read_text())
    for place in [whole, whole["claims"][0]]:
        for key in list(place):
            before = place[key]
            for poison in POISON:
                place[key] = poison
                (folder / "report.json").write_text(json.dumps(whole))
                try:
                    RunFolder(folder).report()
                except NatgradError as error:
                    assert len(str(error).splitlines()) == 1  # noqa: PT017
                else:
                    assert write_report(tmp_path).is_file()
            place[key] = before
