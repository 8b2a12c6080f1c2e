"""English text that every Python includes: the language reference behind `help()`."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import dense, instance, integer
from natgrad.errors import InvalidInputError, ShapeError


@dataclass(frozen=True, eq=False)
class Text:
    """A text as numbers.

    Attributes:
        tokens: The text, each character by its place in `characters`.
        characters: The characters that occur, sorted.
        digest: A hash of the text: another version of Python has another text.
    """

    tokens: Tensor
    characters: str
    digest: str


def encode(text: str) -> Text:
    """Return a text as numbers.

    Example:
        >>> found = encode("abba")
        >>> found.tokens, found.characters
        (tensor([0, 1, 1, 0]), 'ab')

    Raises:
        InvalidInputError: If it is empty.
    """
    if not instance(text, "text", str):
        raise InvalidInputError("a text has at least one character, but this one is empty.")
    characters = "".join(sorted(set(text)))
    place = {character: i for i, character in enumerate(characters)}
    tokens = torch.tensor([place[character] for character in text])
    return Text(tokens, characters, hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest())


def documentation() -> Text:
    """Return the topics of Python's `help()`, about 400 000 characters, in alphabetical order.

    Raises:
        InvalidInputError: If this Python was installed without them.

    Example:
        >>> text = documentation()
        >>> len(text.tokens) > 300_000, "lambda" in "".join(
        ...     text.characters[i] for i in text.tokens.tolist()
        ... )
        (True, True)
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise InvalidInputError(
            "this Python was installed without pydoc_data, the texts behind help(); install its "
            "standard library in full."
        ) from error
    return encode("\n\n".join(topics[name] for name in sorted(topics)))


def windows(tokens: Tensor, length: int, stride: int) -> tuple[Tensor, Tensor]:
    """Return windows of a text, and the same shifted by one, so that each token has its successor.

    Args:
        tokens: The text, shape `(n,)`.
        length: Tokens of one stretch.
        stride: Tokens from the beginning of one to the next.

    Raises:
        InvalidInputError: If the text is shorter than one stretch and a token.

    Example:
        >>> windows(torch.arange(6), length=2, stride=2)
        (tensor([[0, 1],
                [2, 3]]), tensor([[1, 2],
                [3, 4]]))
    """
    length, stride = integer(length, "length", low=1), integer(stride, "stride", low=1)
    if dense(tokens, "tokens").ndim != 1:
        raise ShapeError(f"tokens must have shape (n,), but have {tuple(tokens.shape)}.")
    if len(tokens) <= length:
        raise InvalidInputError(
            f"a window of {length} tokens and its successor need a longer text than {len(tokens)}."
        )
    both = tokens.unfold(0, length + 1, stride)
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()
