"""The folder of a run: written whole, read back, refused with a sentence."""

import json
import math
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from natgrad.errors import InvalidInputError
from natgrad.lab._store import config_file, folder
from natgrad.lab._store.folder import RunFolder, plain
from natgrad.lab.failures import Failure, StoreError
from tests.lab.run_folders import Toy, toy_arrays, write_run


@dataclass(frozen=True)
class Noise:
    sd: float = 0.1
    kind: Literal["normal", "none"] = "normal"


@dataclass(frozen=True)
class Nothing:
    pass


@dataclass(frozen=True)
class Wide:
    """A field of every kind that a config may have."""

    whole: int = 3
    real: float = 1e-6
    whole_real: float = 3
    yes: bool = True
    text: str = ""
    maybe: float | None = None
    choice: Literal["a", 2] = "a"
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[str, float] = ("x", 2.0)
    holes: tuple[float | None, ...] = (1.0, None)
    nested: tuple[tuple[int, ...], ...] = ((1,), (), (2, 3))
    bare: tuple = ()  # type: ignore[type-arg]
    noise: Noise = Noise()
    noises: tuple[Noise, ...] = (Noise(), Noise(2.0, "none"))
    other: Noise | None = None
    nothing: Nothing = Nothing()
    anything: Any = None
    noted: Annotated[int, "a note"] = 4
    größe: int = field(default=5)


CONFIGS = [
    Wide(),
    Wide(real=math.inf, maybe=-math.inf, whole=-(10**30), whole_real=1e300),
    Wide(real=5e-324, maybe=-0.0, whole_real=float(np.nextafter(1.0, 2.0)), holes=(None, None)),
    Wide(text='"quotes" and \\ and \n\t\r\b\f and \x00\x01\x7f\x9f and 𝛼β\u2028'),
    Wide(text="''' \"\"\" # = [x]", pair=("}", 0.0), sizes=(), holes=()),
    Wide(choice=2, bare=(1, "a", (2.5, None)), other=Noise(0.0), noises=(), yes=False),
    Wide(anything=("x", 1, True), maybe=3),
    Wide(real=np.float64(0.1)),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_comes_back_equal(config, tmp_path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(config_file.dump(config, figure="a/b", preset="smoke"), encoding="utf-8")
    read = config_file.build(path, Wide)
    assert read == config
    assert repr(read) == repr(config).replace("np.float64(0.1)", "0.1")  # −0.0, 3 and 3.0 too
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert list(table) == ["figure", "preset", "config"]
    assert (table["figure"], table["preset"]) == ("a/b", "smoke")


def test_a_config_that_is_not_a_number_comes_back(tmp_path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(config_file.dump(Wide(real=math.nan)), encoding="utf-8")
    assert math.isnan(config_file.build(path, Wide).real)


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, object(), 1j, Noise])
def test_a_config_of_other_things_is_refused(value) -> None:
    with pytest.raises(InvalidInputError, match="a config holds numbers"):
        config_file.dump(Wide(anything=value))


@pytest.mark.parametrize("config", [{"a": 1}, Toy, None])
def test_only_dataclasses_are_configs(config) -> None:
    with pytest.raises(InvalidInputError, match="instance of a dataclass"):
        config_file.dump(config)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("dim = 1000", 'dim = "many"', "expected int, but got 'many'"),
        ("dim = 1000", "dim = true", "expected int, but got True"),
        ("dim = 1000", "dim = 1.5", "expected int, but got 1.5"),
        ("dim = 1000", "", "lacks dim"),
        ("dim = 1000", "dim = 1000\nage = 3", "also has age"),
        ("depths = [1, 2, 3]", "depths = 3", "expected a list, but got 3"),
        ("depths = [1, 2, 3]", "depths = [1, {}]", "expected int, but got None"),
        ("[config]", "[confg]", r"has no table \[config\]"),
        ("[config]", "config = 3", "cannot be read as a config|has no table"),
        ("dim = 1000", "dim = = 3", "cannot be read as a config"),
    ],
)
def test_an_edited_config_gets_a_sentence(old, new, sentence, tmp_path) -> None:
    path = tmp_path / "config.toml"
    text = config_file.dump(Toy())
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=sentence) as caught:
        config_file.build(path, Toy)
    assert "config.toml" in str(caught.value)


def test_literals_and_fixed_lengths_are_checked(tmp_path) -> None:
    path = tmp_path / "config.toml"
    for old, new in [('"normal"', '"odd"'), ('pair = ["x", 2.0]', 'pair = ["x"]')]:
        path.write_text(config_file.dump(Wide()).replace(old, new), encoding="utf-8")
        with pytest.raises(InvalidInputError, match="does not fit Wide"):
            config_file.build(path, Wide)


def test_a_run_comes_back(tmp_path) -> None:
    run = write_run(tmp_path / "deep" / "out", options={"end": math.inf}, seconds=np.float64(2.5))
    files = {path.name for path in run.path.iterdir()}
    assert files == {
        "config.toml",
        "report.json",
        "arrays.safetensors",
        "figure.png",
        "figure.pdf",
        "figure.svg",
    }
    assert run.config(Toy) == Toy()
    assert run.settings()["end"] == math.inf
    assert run.arrays()["accuracy"].tobytes() == toy_arrays()["accuracy"].tobytes()
    report = run.report()
    assert report["figure"] == "toy/lines"
    assert report["seconds"] == 2.5
    assert report["options"] == {"end": None}  # JSON has no infinity; config.toml has it
    assert [claim["holds"] for claim in report["claims"]] == [True, False, True]
    assert run.failures() == []


def test_report_json_is_strict_json(tmp_path) -> None:
    run = write_run(tmp_path, environment={"x": math.nan})
    text = (run.path / "report.json").read_text(encoding="utf-8")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse)["environment"] == {"x": None}
    assert text.endswith("}\n")


def test_plain_values() -> None:
    found = plain({"a": (np.float32(0.5), Noise()), 2: np.arange(2), "p": Path("x"), "b": True})
    assert found == {"a": [0.5, {"sd": 0.1, "kind": "normal"}], "2": [0, 1], "p": "x", "b": True}


@pytest.mark.parametrize("key", sorted(folder._REPORT))
def test_a_report_without_a_key_is_not_written(key, tmp_path) -> None:
    kept = write_run(tmp_path).report()
    without = {name: value for name, value in kept.items() if name != key}
    with pytest.raises(InvalidInputError, match=f"the report lacks '{key}'"):
        RunFolder(tmp_path / "toy-lines").write(
            config=Toy(), report=without, arrays=toy_arrays(), pictures={}
        )
    assert RunFolder(tmp_path / "toy-lines").report() == kept


def test_failures_lie_beside_the_older_run_until_a_complete_one(tmp_path) -> None:
    run = write_run(tmp_path)
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    failure = Failure("seed 3", "m:f", "{}", "timeout", "it ran over 60 s.")
    run.write_failures([failure.to_json()])
    assert run.failures() == [failure.to_json()]
    assert all((run.path / name).read_bytes() == data for name, data in before.items())
    write_run(tmp_path)
    assert run.failures() == []


@pytest.mark.parametrize(
    ("name", "content", "read", "sentence"),
    [
        ("report.json", "{", "report", "report.json is broken"),
        ("report.json", "[]", "report", "not a JSON object"),
        ("report.json", "{}", "report", "lacks 'figure'"),
        ("report.json", "\udcff", "report", "report.json is broken"),
        ("report.json", None, "report", "report.json cannot be read: No such file"),
        ("config.toml", None, "settings", "config.toml cannot be read: No such file"),
        ("config.toml", "a = ", "settings", "config.toml cannot be read as a config"),
        ("config.toml", "\udcff", "settings", "config.toml cannot be read as a config"),
        ("config.toml", "a = 1", "settings", "no table"),
        ("arrays.safetensors", "x", "arrays", "cannot be read as arrays"),
        ("arrays.safetensors", None, "arrays", "cannot be read as arrays"),
        ("failures.json", "3", "failures", "not a list of failed cells"),
        ("failures.json", "[3]", "failures", "not a list of failed cells"),
        ("failures.json", "{", "failures", "failures.json is broken"),
    ],
)
def test_a_broken_folder_gets_a_sentence(name, content, read, sentence, tmp_path) -> None:
    run = write_run(tmp_path)
    if content is None:
        (run.path / name).unlink()
    else:
        (run.path / name).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(InvalidInputError, match=sentence):
        getattr(run, read)()


@pytest.mark.parametrize(
    ("key", "value"),
    [("claims", {}), ("seconds", "3"), ("figure", 3), ("departures", [3]), ("claims", [{"id": 1}]),
     ("table", {"heads": ["a"], "rows": [["1", "2"]], "note": ""}), ("table", {"heads": ["a"]}),
     ("table", [["a"]])],
)  # fmt: skip
def test_a_report_of_wrong_kinds_gets_a_sentence(key, value, tmp_path) -> None:
    run = write_run(tmp_path)
    path = run.path / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InvalidInputError, match=r"report\.json"):
        run.report()


OTHER = {"config": Toy(dim=7), "seconds": 1.0, "pictures": {"figure.svg": b"<svg/>"}}


@pytest.mark.parametrize("moment", range(7))
def test_a_full_disk_leaves_the_older_run(moment, tmp_path, monkeypatch) -> None:
    run = write_run(tmp_path)
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    left = [moment]

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="the disk is full"):
        write_run(tmp_path, arrays=toy_arrays(seeds=2), **OTHER)
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


@pytest.mark.parametrize("moment", range(6))
def test_a_run_cut_off_while_its_files_change_names_is_no_run(
    moment, tmp_path, monkeypatch
) -> None:
    """Never the arrays of one run beside the report of another."""
    run = write_run(tmp_path)
    replace, left = os.replace, [moment]

    def dies(source: Path, target: Path) -> None:
        if target.parent == run.path and not target.name.endswith(".tmp"):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        write_run(tmp_path, seconds=1.0)
    with pytest.raises(InvalidInputError, match="No such file"):
        run.report()
    assert not [path for path in run.path.iterdir() if path.suffix == ".tmp"]


def test_a_file_where_the_folder_should_be(tmp_path) -> None:
    (tmp_path / "toy-lines").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*not a directory"):
        write_run(tmp_path)


def test_arrays_that_cannot_be_saved_leave_the_older_run(tmp_path) -> None:
    run = write_run(tmp_path)
    arrays = toy_arrays()
    arrays._values["names"], arrays.dims["names"] = np.array(["a", "b"]), ("n",)
    with pytest.raises(StoreError, match="cannot write the arrays"):
        write_run(tmp_path, arrays=arrays, seconds=1.0)
    assert run.report()["seconds"] == 200.4
