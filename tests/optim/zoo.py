"""Nine small networks of the kinds that people bring, each with data, a loss and a loop's body."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from natgrad.optim import Loss


@dataclass
class Task:
    """A network and what it is trained on.

    Attributes:
        model: The network.
        criterion: What the optimizer is told of the loss.
        loss: The loss of some samples.
        n: Number of samples.
        batch: Samples in a batch.
        steps: How many.
    """

    model: nn.Module
    criterion: Any
    loss: Callable[[Tensor], Tensor]
    n: int
    batch: int
    steps: int

    def train(self, optimizer: torch.optim.Optimizer) -> float:
        """The loop that everybody writes; returns the training loss over all samples.

        Where the model draws noise this is an average over draws: a single one changes the loss of
        the VAE by more than optimizers do.
        """
        order = torch.Generator().manual_seed(0)
        torch.manual_seed(1)
        for _ in range(self.steps):
            rows = torch.randint(0, self.n, (self.batch,), generator=order)
            loss = self.loss(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.manual_seed(2)
        with torch.no_grad():
            return statistics.fmean(float(self.loss(torch.arange(self.n))) for _ in range(20))


class Residual(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Conv2d(n, n, 3, padding=1, bias=False) for _ in range(2))
        self.norm_a, self.norm_b = nn.BatchNorm2d(n), nn.BatchNorm2d(n)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm_b(self.b(F.relu(self.norm_a(self.a(x))))))


def resnet() -> Task:
    """A ResNet with batch normalization and dropout, on noisy templates."""
    templates, y = torch.randn(5, 1, 8, 8), torch.randint(0, 5, (160,))
    x = templates[y] + 1.5 * torch.randn(160, 1, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Residual(8),
        nn.AvgPool2d(2),
        Residual(8),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(128, 5),
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    return Task(model, criterion, lambda i: criterion(model(x[i]), y[i]), 160, 64, 40)


class GPT(nn.Module):
    """One block of causal attention; the head is the table of embeddings."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.1)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        h = self.tokens(x) + self.places(torch.arange(t))
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        z = self.first(h)
        h = h + self.attention(z, z, z, attn_mask=mask, need_weights=False)[0]
        h = h + self.mlp(self.second(h))
        return self.head(self.last(h))


def gpt() -> Task:
    """A language model with tied embeddings; every second token repeats what was before it."""
    text = torch.randint(0, 12, (120, 6)).repeat_interleave(2, 1)
    text = torch.cat([text, (text[:, -2:] + 1) % 12], 1)
    model, criterion = GPT(12, 13, 24), nn.CrossEntropyLoss()

    def loss(i: Tensor) -> Tensor:
        x, y = text[i, :-1], text[i, 1:]
        return criterion(model(x).view(-1, 12), y.reshape(-1))

    return Task(model, criterion, loss, 120, 40, 60)


class Translator(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.inner = nn.Transformer(width, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        places = self.places(torch.arange(source.shape[1]))
        mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        a, b = self.tokens(source) + places, self.tokens(target) + places[: target.shape[1]]
        return self.head(self.inner(a, b, tgt_mask=mask))


def translator() -> Task:
    """An encoder and a decoder with cross-attention, which learn to reverse."""
    source = torch.randint(1, 8, (120, 5))
    target = torch.cat([torch.zeros(120, 1, dtype=torch.long), source.flip(1)], 1)
    model, criterion = Translator(8, 6, 16), nn.CrossEntropyLoss()

    def loss(i: Tensor) -> Tensor:
        return criterion(model(source[i], target[i, :-1]).mT, target[i, 1:])

    return Task(model, criterion, loss, 120, 40, 60)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.table(x))[0])


def tagger() -> Task:
    """An LSTM that tags texts of unequal length, padded."""
    x = torch.randint(1, 10, (120, 7))
    tags = (x + x.roll(1, 1)) % 4
    padded = torch.arange(7) >= torch.randint(3, 8, (120, 1))
    x, tags = x.masked_fill(padded, 0), tags.masked_fill(padded, -100)
    model, criterion = Tagger(), nn.CrossEntropyLoss(ignore_index=-100)
    return Task(model, criterion, lambda i: criterion(model(x[i]).mT, tags[i]), 120, 40, 60)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 6, 3, padding=1)
        self.deep = nn.Conv2d(6, 12, 3, padding=1)
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.last = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.down(x))
        z = F.relu(self.deep(F.max_pool2d(h, 2)))
        return self.last(torch.cat([h, F.relu(self.up(z))], 1))


def unet() -> Task:
    """A U-Net that finds disks in noise."""
    grid = torch.stack(torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij"))
    center, radius = 3 + 6 * torch.rand(80, 2, 1, 1), 1.5 + 2 * torch.rand(80, 1, 1)
    y = ((grid - center).square().sum(1) < radius**2).float()[:, None]
    x = y + 0.7 * torch.randn(80, 1, 12, 12)
    model, criterion = UNet(), nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0))
    return Task(model, criterion, lambda i: criterion(model(x[i]), y[i]), 80, 32, 40)


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 24), nn.Tanh(), nn.Linear(24, 6))
        self.decoder = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 20))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        z = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        return self.decoder(z), mean, log_variance


def vae() -> Task:
    """A variational autoencoder, whose loss has two terms and whose forward draws noise."""
    x = (torch.randn(200, 3) @ torch.randn(3, 20) > 0).float()

    def bound(logits: Tensor, x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        fit = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
        return (fit + divergence).mean()

    model, criterion = VAE(), Loss(bound)

    def loss(i: Tensor) -> Tensor:
        logits, mean, log_variance = model(x[i])
        return criterion(logits, x[i], mean, log_variance)

    return Task(model, criterion, loss, 200, 128, 80)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh())
        self.label, self.value = nn.Linear(24, 3), nn.Linear(24, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.trunk(x)
        return self.label(h), self.value(h)


def heads() -> Task:
    """Two heads with two losses."""
    x = torch.randn(200, 4)
    labels = ((x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()).clamp(max=2)
    values = torch.stack([torch.sin(2 * x[:, 0]), x[:, 1] * x[:, 3]], 1)
    model, criteria = Heads(), [nn.CrossEntropyLoss(), nn.MSELoss()]

    def loss(i: Tensor) -> Tensor:
        a, b = model(x[i])
        return criteria[0](a, labels[i]) + 0.5 * criteria[1](b, values[i])

    return Task(model, criteria, loss, 200, 100, 80)


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.history = nn.EmbeddingBag(30, 8, mode="mean", padding_idx=0)
        self.items = nn.Embedding(30, 8)
        self.head = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, history: Tensor, item: Tensor) -> Tensor:
        a, b = self.history(history), self.items(item)
        return self.head(torch.cat([a, b, a * b], 1))[:, 0]


def recommender() -> Task:
    """Ratings from what a user has seen, as a bag of items of unequal length."""
    kinds = torch.randn(30, 3)
    history = torch.randint(1, 30, (300, 6))
    history = history.masked_fill(torch.arange(6) >= torch.randint(2, 7, (300, 1)), 0)
    item = torch.randint(1, 30, (300,))
    seen = (history > 0).float()[:, :, None]
    taste = (kinds[history] * seen).sum(1) / seen.sum(1)
    rating = (taste * kinds[item]).sum(1) + 0.1 * torch.randn(300)
    model, criterion = Recommender(), nn.SmoothL1Loss()
    return Task(
        model, criterion, lambda i: criterion(model(history[i], item[i]), rating[i]), 300, 100, 80
    )


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 12))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.net(x).chunk(3, 1)


def mixture() -> Task:
    """A mixture density network on a curve that doubles back, with a custom loss."""
    y = torch.rand(200, 1) * 2 - 1
    x = y + 0.5 * torch.sin(6 * y) + 0.05 * torch.randn(200, 1)

    def density(parts: tuple[Tensor, ...], y: Tensor) -> Tensor:
        logits, mean, log_scale = parts
        inner = -0.5 * ((y - mean) / log_scale.exp()) ** 2 - log_scale
        return -torch.logsumexp(logits.log_softmax(1) + inner, 1).mean()

    model, criterion = Mixture(), Loss(density)
    return Task(model, criterion, lambda i: criterion(model(x[i]), y[i]), 200, 100, 100)


TASKS: dict[str, Callable[[], Task]] = {
    task.__name__: task
    for task in (
        resnet,
        gpt,
        translator,
        tagger,
        unet,
        vae,
        heads,
        recommender,
        mixture,
    )
}
