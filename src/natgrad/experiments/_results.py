"""Results of a user's own data are not overwritten in silence."""

from pathlib import Path
from typing import Any

from natgrad.errors import InvalidInputError
from natgrad.lab._store.folder import RunFolder


def refuse_to_overwrite(folder: Path, config: Any) -> None:
    """Raise an error if a folder holds results of other options or other data.

    Raises:
        InvalidInputError: If it does.
    """
    if not (folder / "config.toml").is_file():
        return
    try:
        same = RunFolder(folder).config(type(config)) == config
    except InvalidInputError:  # of another version, or broken
        same = False
    if not same:
        raise InvalidInputError(
            f"{folder} holds results of other options or other data. Give another folder with "
            "--out, or overwrite them with --force."
        )
