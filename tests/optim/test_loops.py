"""NGD inside the loops that people use takes the steps of the plain loop."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Sequential, Tanh
from torch.utils.data import DataLoader, TensorDataset

from natgrad import NGD, Categorical
from natgrad.optim import Quadratic
from tests.helpers import generator

DOCS = Path(__file__).parents[2] / "docs"
X = torch.randn(256, 4, generator=generator(0))
Y = (X[:, 0] * X[:, 1] > 0).long()

# Third parties: deprecations inside their own imports, advice on workers, devices and loggers.
# natgrad's own warnings stay errors.
quiet = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torchvision"),
]


def needs(*packages: str) -> None:
    """Skip where a package is missing.

    lightning and transformers import torchvision where there is one. One that was built for CUDA,
    beside a torch that was not, has no operators and cannot be imported; none is used here, so
    their names are enough.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", signature)


def network() -> Sequential:
    made = Sequential(Linear(4, 16), Tanh(), Linear(16, 2))
    source = generator(1)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=source))
    return made


def batches() -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(X, Y), batch_size=64)


def plain(epochs: int, every: int = 1, clip: float = 0.0) -> NGD:
    """The loop of the tutorial, with accumulated and clipped gradients."""
    model, criterion = network(), Categorical()
    optimizer = NGD(model, criterion)
    for _ in range(epochs):
        for i, (x, y) in enumerate(batches()):
            (criterion(model(x), y) / every).backward()
            if (i + 1) % every == 0:
                if clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return optimizer


def assert_same(found: NGD, expected: NGD) -> None:
    """Equal weights, and a damping that is equal and has moved."""
    pairs = zip(found.model.parameters(), expected.model.parameters(), strict=True)
    for p, q in pairs:
        assert torch.allclose(p, q, rtol=0, atol=1e-6)
    assert found.statistics.step == expected.statistics.step
    assert found.statistics.damping == pytest.approx(expected.statistics.damping, rel=1e-9)
    assert found.statistics.damping != found.damping.start


def lightning_module() -> Any:
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.criterion = network(), Categorical()

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            x, y = batch
            return self.criterion(self.network(x), y)

        def configure_optimizers(self) -> NGD:
            return NGD(self.network, self.criterion)

    return Lit()


def fit(module: Any, epochs: int, resume: Path | None = None, **options: Any) -> Any:
    """Train by Lightning; return its trainer."""
    import lightning

    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module, batches(), ckpt_path=resume)
    return trainer


class TestLightning:
    pytestmark = quiet

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        needs("lightning")

    def test_it_takes_the_steps_of_the_plain_loop(self):
        trainer = fit(lightning_module(), 4)
        assert_same(trainer.optimizers[0], plain(4))

    def test_accumulation_is_that_of_the_plain_loop(self):
        trainer = fit(lightning_module(), 4, accumulate_grad_batches=2)
        assert_same(trainer.optimizers[0], plain(4, every=2))

    def test_clipping_is_that_of_the_plain_loop(self):
        trainer = fit(lightning_module(), 4, gradient_clip_val=0.05)
        assert_same(trainer.optimizers[0], plain(4, clip=0.05))

    def test_a_checkpoint_goes_on_as_if_nothing_had_happened(self, tmp_path):
        file = tmp_path / "two.ckpt"
        fit(lightning_module(), 2).save_checkpoint(file)
        trainer = fit(lightning_module(), 4, resume=file)
        assert_same(trainer.optimizers[0], plain(4))


class TestTransformers:
    pytestmark = quiet

    @pytest.fixture(autouse=True)
    def _installed(self, monkeypatch) -> None:
        needs("transformers", "accelerate")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def test_a_trainer_takes_the_steps_of_the_plain_loop(self, tmp_path):
        from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
        from transformers.modeling_outputs import SequenceClassifierOutput

        class Small(PreTrainedModel):
            config_class = PretrainedConfig

            def __init__(self, config: PretrainedConfig) -> None:
                super().__init__(config)
                self.network = network()

            def forward(self, inputs: Tensor) -> SequenceClassifierOutput:
                return SequenceClassifierOutput(logits=self.network(inputs))

        model, criterion = Small(PretrainedConfig()), Categorical()
        optimizer = NGD(model, criterion)
        trainer = Trainer(
            model,
            TrainingArguments(
                str(tmp_path),
                per_device_train_batch_size=64,
                num_train_epochs=4,
                max_grad_norm=0.0,
                lr_scheduler_type="constant",
                train_sampling_strategy="sequential",
                label_names=["labels"],  # the forward has no such argument to find them by
                use_cpu=True,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=[{"inputs": x, "labels": y} for x, y in zip(X, Y, strict=True)],
            optimizers=(optimizer, None),
            compute_loss_func=lambda out, y, num_items_in_batch=None: criterion(out.logits, y),
        )
        trainer.train()
        assert_same(optimizer, plain(4))


def run_page(section: str) -> dict[str, Any]:
    """Run the data's block of docs/loops.md, then those of one section."""
    shared, *sections = (DOCS / "loops.md").read_text().split("\n## ")
    (chosen,) = [text for text in sections if text.startswith(section)]
    scope: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", shared + chosen, re.S):
        exec(compile(code, "loops.md", "exec"), scope)
    return scope


class TestPage:
    pytestmark = quiet

    @pytest.fixture(autouse=True)
    def _in_a_folder_of_its_own(self, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def test_tensorboard(self, tmp_path):
        needs("tensorboard")
        assert run_page("TensorBoard")["optimizer"].statistics.step == 10
        assert list((tmp_path / "logs").glob("events*"))

    def test_lightning(self):
        needs("lightning")
        found = run_page("Lightning")["trainer"].optimizers[0]
        assert found.statistics.step == 40
        assert found.statistics.loss < 0.5  # from log 4
        assert found.statistics.damping != found.damping.start

    def test_transformers(self):
        needs("transformers", "accelerate")
        found = run_page("transformers")["optimizer"]
        assert found.statistics.step == 80
        assert found.statistics.loss < 1.8  # from log 15, past the frequencies of words, log 12
        assert not any("equal shares" in note for note in found.statistics.notes)
        assert found.statistics.damping != found.damping.start


def test_tensorboard_holds_what_the_steps_did(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    model, criterion, seen = network(), Categorical(), []
    optimizer = NGD(model, criterion, step_length=Quadratic())
    writer = SummaryWriter(str(tmp_path))

    def log(optimizer: NGD, args: object, kwargs: object) -> None:
        seen.append(optimizer.statistics)
        for name, value in optimizer.statistics.scalars().items():
            writer.add_scalar(f"ngd/{name}", value, optimizer.statistics.step)

    optimizer.register_step_post_hook(log)
    for x, y in batches():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    writer.close()

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    for name in ("loss", "damping", "length", "ratio"):
        found = events.Scalars(f"ngd/{name}")
        known = [s for s in seen if getattr(s, name) is not None]  # not every step measures ρ
        assert len(known) >= 3
        assert [e.step for e in found] == [s.step for s in known]
        assert [e.value for e in found] == pytest.approx([getattr(s, name) for s in known])


@pytest.mark.slow
def test_the_script_for_several_processes_runs_and_resumes(tmp_path):
    page = (DOCS / "tutorial_optimizer.md").read_text()
    script = re.search(r"```py\n(# train\.py\n.*?)```", page, re.S)
    assert script is not None
    # Now and then torch aborts while the interpreter ends, after a script that only wraps a model
    # in DistributedDataParallel as well. What is tested here has happened by then.
    quiet_end = "import os, sys\nsys.stdout.flush()\nos._exit(0)\n"
    (tmp_path / "train.py").write_text(script[1] + quiet_end)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    losses = []
    for steps in (20, 40):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        run = subprocess.run(
            [sys.executable, *torchrun, "--master-port", str(port), "train.py"],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            text=True,
            capture_output=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stderr
        found = re.search(r"^step (\d+): loss ([\d.]+), λ ([\d.e+-]+)$", run.stdout, re.M)
        assert found is not None, run.stdout
        assert int(found[1]) == steps
        assert float(found[3]) < 0.1
        losses.append(float(found[2]))
    assert losses[1] < losses[0] < 0.5
