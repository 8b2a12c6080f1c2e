"""The page of all runs, read as text and by a parser."""

import base64
import gzip
import hashlib
import json
import math
import re
import shlex
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from natgrad.errors import InvalidInputError
from natgrad.lab import _formats as formats
from natgrad.lab import figures, registry
from natgrad.lab.arrays import Arrays
from natgrad.lab.report import _entries as entries
from natgrad.lab.report import write_report
from natgrad.lab.report._command import command
from tests.lab.run_folders import Toy, toy_arrays, write_run

VOID = {"meta", "link", "img"}


class Page(HTMLParser):
    """All elements with their attributes, and the text of some."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.code: dict[str, str] = {}
        self.shown = ""
        self.open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        tag = self.open[-1] if self.open else ""
        if tag in ("style", "script"):
            self.code[tag] = self.code.get(tag, "") + data
        else:
            self.shown += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", self.shown)

    def csv(self, name: str) -> str:
        (link,) = [a for a in self.all("a") if a.get("download") == f"{name}.gz"]
        head, _, data = link["href"].partition(",")
        assert head == "data:application/gzip;base64"
        return gzip.decompress(base64.b64decode(data)).decode()


def page(out: Path) -> Page:
    path = write_report(out)
    assert path == out / "report.html"
    assert path.read_bytes().startswith(b"<!doctype html>")
    return Page(path)


def verified(count: int, **changes: Any) -> str:
    item = {"id": "kmh21/eq5", "statement": "F v = −∇L", "source": "[KMH21] (5)"}
    item |= {"residual": 3e-15, "tolerance": 1e-10, "holds": True, "seconds": 0.1}
    return json.dumps([item] * (count - 1) + [item | changes])


def test_the_policy_allows_one_style_one_script_and_no_network(tmp_path) -> None:
    write_run(tmp_path)
    found = page(tmp_path)
    assert "http-equiv" in found.all("meta")[1]  # before anything it should govern
    policy = found.all("meta")[1]["content"]
    for tag in ("style", "script"):
        assert len(found.all(tag)) == 1
        digest = hashlib.sha256(found.code[tag].encode()).digest()
        assert f"{tag}-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy


def test_nothing_is_fetched_and_nothing_runs_from_an_attribute(tmp_path) -> None:
    write_run(tmp_path)
    for tag, attributes in page(tmp_path).elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            target = attributes.get(name, "")
            assert not target or target.startswith(("data:", "#")), (tag, target[:80])


def test_links_within_the_page_lead_somewhere(tmp_path) -> None:
    write_run(tmp_path, "toy-a")
    write_run(tmp_path, "toy b&c")
    found = page(tmp_path)
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    inside = {a["href"][1:] for a in found.all("a") if a.get("href", "").startswith("#")}
    assert len(inside) == 2
    assert inside <= set(ids)
    for _, attributes in found.elements:
        assert attributes.get("aria-labelledby", ids[0]) in ids


def test_folders_whose_names_differ_in_signs_alone_have_their_own_places(tmp_path) -> None:
    write_run(tmp_path, "toy-a b")
    write_run(tmp_path, "toy-a+b")
    slugs = [a["id"] for a in page(tmp_path).all("section") if a.get("class") == "run"]
    assert len(set(slugs)) == 2


def test_claims_verdicts_and_numbers_are_shown(tmp_path) -> None:
    claims = write_run(tmp_path / "aside").report()["claims"]
    claims[0] |= {"value": 1.2345e-7, "sd": 2e-9, "n": 5, "holds": True, "expected": True}
    claims[1] |= {"value": None, "sd": None, "holds": False, "expected": True}
    out = tmp_path / "out"
    write_run(out, claims=claims)
    text = page(out).text.replace("\N{NO-BREAK SPACE}", " ")
    assert "1.235×10⁻⁷ ± 2×10⁻⁹, n = 5" in text
    assert "1 FAIL" in text
    assert "0 refute the paper (documented)" in text
    assert "2 hold" in text
    assert "The paper prints no seed" in text
    assert "3 min 20 s" in text
    assert "natgrad reproduce toy/lines --preset paper" in text
    assert "25 done, 5 reused" in text


@pytest.mark.parametrize(
    ("holds", "expected", "words"),
    [
        (True, True, "holds"),
        (False, True, "FAILS"),
        (False, False, "refutes the paper (documented)"),
        (True, False, "FAILS: holds, but is documented as refuted"),
        (None, True, "not judged at this preset"),
        (None, False, "not judged at this preset"),
    ],
)
def test_verdicts(holds, expected, words) -> None:
    found = formats.verdict(holds, expected)
    assert found.words == words
    assert (found.kind == "fails") == (holds is not None and holds != expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-3.0, "−3"),
        (0.5, "0.5"),
        (-0.25, "−0.25"),
        (12345678, "1.235×10⁷"),
        (2e-10, "2×10⁻¹⁰"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_numbers(value, text) -> None:
    assert formats.number(value) == text


def test_figures_come_in_the_order_people_count(tmp_path) -> None:
    for name in ("toy-fig10", "toy-fig2", "toy-fig1"):
        write_run(tmp_path, name)
    slugs = [a["id"] for a in page(tmp_path).all("section") if a.get("class") == "run"]
    assert slugs == ["run-toy-fig1", "run-toy-fig2", "run-toy-fig10"]


def test_the_data_are_the_arrays(tmp_path) -> None:
    write_run(tmp_path)
    found = page(tmp_path)
    assert found.csv("toy-lines-accuracy.csv") == toy_arrays().csv("accuracy")
    assert found.csv("toy-lines-margin.csv") == toy_arrays().csv("margin")


def test_the_picture_is_in_the_page_once_and_unchanged(tmp_path) -> None:
    run = write_run(tmp_path)
    found = page(tmp_path)
    shown = [a["src"] for a in found.all("img") if "src" in a]
    assert len(shown) == 1
    assert base64.b64decode(shown[0].partition(",")[2]) == (run.path / "figure.svg").read_bytes()
    assert write_report(tmp_path).read_text().count(shown[0]) == 1
    names = [a["download"] for a in found.all("a") if "download" in a]
    assert names[:3] == ["toy-lines.svg", "toy-lines.png", "toy-lines.pdf"]


def test_large_arrays_stay_in_their_file(tmp_path) -> None:
    arrays = Arrays()
    arrays.add("kernel", np.zeros((700, 700)), "row", "column")
    arrays.add("digits", np.random.default_rng(0).standard_normal(45_000), "row")
    arrays.add("small", np.arange(3), "row of small")
    write_run(tmp_path, arrays=arrays)
    found = page(tmp_path)
    names = [a["download"] for a in found.all("a") if a.get("download", "").endswith(".csv.gz")]
    assert names == ["toy-lines-small.csv.gz"]
    assert "kernel (row 700 × column 700: 490000 numbers) is too large" in found.text
    assert "toy-lines/arrays.safetensors" in found.text
    assert write_report(tmp_path).stat().st_size < 1_000_000


def test_many_arrays_share_what_room_a_run_has(tmp_path) -> None:
    arrays, values = Arrays(), np.random.default_rng(0).standard_normal(30_000)
    for index in range(8):
        arrays.add(f"x{index}", values, "row")
    each = len(arrays.csv("x0"))
    write_run(tmp_path, arrays=arrays)
    links = [a for a in page(tmp_path).all("a") if a.get("download", "").endswith(".csv.gz")]
    assert len(links) == entries.CSV_BYTES_PER_RUN // each < 8


def test_too_many_vectors_are_shown_as_dots(tmp_path) -> None:
    run = write_run(tmp_path)
    path = run.path / "figure.svg"
    path.write_bytes(path.read_bytes().replace(b"</svg>", b" " * 3_000_000 + b"</svg>"))
    (shown,) = [a["src"] for a in page(tmp_path).all("img") if "src" in a]
    assert shown.startswith("data:image/png;")


@pytest.mark.parametrize("content", [None, b"", b"<svg", b"<p xmlns='x'></p>", b"\xff\xfe"])
def test_without_a_picture_the_rest_is_shown(content, tmp_path) -> None:
    run = write_run(tmp_path)
    for kind in ("svg", "png", "pdf"):
        (run.path / f"figure.{kind}").unlink()
        if content is not None:
            (run.path / f"figure.{kind}").write_bytes(content)
    found = page(tmp_path)
    assert "no picture that can be shown; try natgrad draw" in found.text
    assert [a for a in found.all("img") if "src" in a] == []
    assert "Depth 2 does no better" in found.text


def test_broken_folders_are_sentences_beside_the_others(tmp_path) -> None:
    write_run(tmp_path, "toy-good")
    for name, file, content in [
        ("toy-cut", "report.json", b"{"),
        ("toy-bytes", "report.json", b"\xff"),
        ("toy-half", "config.toml", b"a = 1"),
        ("toy-failed", "failures.json", b'[{"label": "seed 3", "message": "no memory"}, {}]'),
        ("toy-worse", "failures.json", b"{"),
    ]:
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(content)
    arrays = write_run(tmp_path, "toy-arrays").path / "arrays.safetensors"
    arrays.write_bytes(b"x")
    (write_run(tmp_path, "toy-config").path / "config.toml").unlink()
    (tmp_path / "store" / "ab").mkdir(parents=True)
    (tmp_path / "unrelated").mkdir()
    found = page(tmp_path)
    for words in (
        "toy-cut/report.json is broken",
        "toy-bytes/report.json is broken",
        "toy-half/report.json cannot be read: No such file",
        "2 cells failed in toy-failed. No run of it is complete",
        "seed 3: no memory",
        "toy-worse/failures.json is broken",
        "toy-arrays/arrays.safetensors cannot be read as arrays",
        "toy-config/config.toml cannot be read: No such file",
        "3 figures",
    ):
        assert words in found.text
    assert "unrelated" not in found.text
    assert "store" not in found.text


def test_failures_of_a_later_run_are_said(tmp_path) -> None:
    write_run(tmp_path).write_failures([{"label": "seed 3", "message": "it ran over 60 s."}])
    text = page(tmp_path).text
    assert "1 cell failed in a later run" in text
    assert "seed 3: it ran over 60 s." in text


def test_identities_are_summed_up(tmp_path) -> None:
    (tmp_path / "verify.json").write_text(verified(3))
    assert "3 of 3 identities verified" in page(tmp_path).text
    (tmp_path / "verify.json").write_text(verified(3, holds=False, residual=None))
    found = page(tmp_path)
    assert "2 of 3 hold" in found.text
    assert "FAILS" in found.text


@pytest.mark.parametrize("content", ["{", "{}", "[3]", '[{"id": 3}]', verified(1, residual="x")])
def test_broken_outcomes_of_verify_are_a_sentence(content, tmp_path) -> None:
    (tmp_path / "verify.json").write_text(content)
    assert "verify.json" in page(tmp_path).text


def test_an_empty_folder_says_what_to_do(tmp_path) -> None:
    assert "natgrad reproduce --preset quick makes one" in page(tmp_path).text


def test_one_run_alone_can_be_shown(tmp_path) -> None:
    run = write_run(tmp_path)
    assert "1 figure, 3 claims" in page(run.path).text


def test_a_missing_folder_is_a_sentence(tmp_path) -> None:
    with pytest.raises(InvalidInputError, match="there is no folder"):
        write_report(tmp_path / "runs")


def test_the_same_runs_give_the_same_page(tmp_path) -> None:
    write_run(tmp_path)
    first = write_report(tmp_path).read_bytes()
    assert write_report(tmp_path).read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "toy-lines"]


def test_what_users_wrote_is_text(tmp_path) -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7*7 }}'
    arrays = Arrays(**{evil: [evil]})
    arrays.add(evil, [1.0], evil)
    claims = write_run(tmp_path / "aside").report()["claims"]
    claims[0] |= {"id": evil, "statement": evil, "source": evil, "relation": evil}
    run = write_run(
        tmp_path / "out",
        "toy-" + evil.replace("/", ""),
        figure=evil,
        title=evil,
        story=evil,
        source=evil,
        preset="paper",
        claims=claims,
        departures=[evil],
        table={"heads": [evil], "rows": [[evil]], "note": evil},
        revision=evil,
        options={"note": evil, evil: evil},
        environment={evil: evil},
        cells={evil: evil},
        seeds=[0, 1],
        config=Toy(note=evil),
        arrays=arrays,
    )
    run.write_failures([{"label": evil, "message": evil}])
    (tmp_path / "out" / "verify.json").write_text(verified(1, id=evil, statement=evil, source=evil))
    found = page(tmp_path / "out")
    assert len(found.all("script")) == 1
    assert len(found.all("img")) == 3  # the picture, its thumbnail, and the one in the dialog
    assert found.text.count(evil) >= 17


def test_the_table_of_a_run_is_shown(tmp_path) -> None:
    write_run(tmp_path, table={"heads": ["path", "end"], "rows": [["EGD", "ℓ2"]], "note": "Two."})
    found = page(tmp_path)
    assert "Table: 1 line path end EGD ℓ2 Two." in found.text
    assert {a["data-label"] for a in found.all("td")} >= {"path", "end"}


@dataclass(frozen=True, kw_only=True)
class Noise:
    sd: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Options:
    dim: int = 3
    init_scale: float = 1.0
    sizes: tuple[int, ...] = (1, 2)
    points: tuple[float, ...] = (1.0,)
    note: str = "x"
    cap: float | None = 2.0
    tied: bool = False
    exact: bool = True
    noise: Noise = Noise()


@pytest.mark.parametrize(
    "config",
    [
        Options(),
        Options(dim=-4, init_scale=-1e-06, sizes=(), points=(-1e-06, math.inf, 0.1)),
        Options(note="a 'b' \"c\" $HOME `x` \\ ;&|\n#"),
        Options(note="--dim"),
        Options(note=""),
        Options(cap=None, tied=True, exact=False),
        Options(noise=Noise(sd=0.5)),
    ],
)
def test_the_command_gives_the_config_again(config, tmp_path) -> None:
    changed = {k: v for k, v in vars(config).items() if v != vars(Options())[k]}
    run = write_run(tmp_path, config=config, options=changed)
    entry = entries.read_entry(run.path)
    words = shlex.split(" ".join(entry.command))
    assert words[:5] == ["natgrad", "reproduce", "toy/lines", "--preset", "paper"]
    as_the_command_line = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    assert tyro.cli(Options, args=words[5:], config=as_the_command_line) == config
    assert entry.changed == changed.keys()


def test_a_figure_with_an_odd_name_is_quoted() -> None:
    words = command({"figure": "a b; rm", "preset": "paper"}, {})
    assert " ".join(words) == "natgrad reproduce 'a b; rm' --preset paper"


def test_changed_options_are_marked(tmp_path) -> None:
    write_run(tmp_path, config=replace(Toy(), dim=200), options={"dim": 200})
    text = page(tmp_path).text
    assert "--dim 200" in text
    assert text.count("changed") == 2  # beside the preset, and beside the option


def test_the_experiment_of_the_documentation_runs(tmp_path, monkeypatch) -> None:
    registered: dict[str, Any] = {}
    monkeypatch.setattr(registry, "_EXPERIMENTS", registered)
    guide = Path(__file__).parents[2] / "docs" / "laboratory.md"
    (code,) = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.S)
    exec(compile(code, str(guide), "exec"), {"__name__": "means"})
    (experiment,) = registered.values()
    config = experiment.presets["paper"]
    arrays = experiment.compute(config, lambda cells, title="": [cell.run() for cell in cells])
    claims = experiment.claims(config, arrays)
    assert all(claim.as_expected("paper") for claim in claims)
    with figures.style():
        pictures = figures.render(experiment.draw(config, arrays))
    run = write_run(
        tmp_path,
        experiment.folder,
        config=config,
        arrays=arrays,
        pictures=pictures,
        claims=[claim.to_json("paper") for claim in claims],
    )
    assert run.config(type(config)) == config
    assert "1 hold" in page(tmp_path).text
