"""The packages of the extra `lab`, and the error that says what to install without them."""

from importlib.util import find_spec

from natgrad.lab.failures import MissingExtraError

PACKAGES = ("jinja2", "matplotlib", "rich", "threadpoolctl", "tyro")


def missing() -> list[str]:
    """Return the packages of the extra that are not installed.

    Example:
        >>> missing()
        []
    """
    return [name for name in PACKAGES if find_spec(name) is None]


def require_lab() -> None:
    """Check that the extra is installed.

    Raises:
        MissingExtraError: If one of its packages is missing; the message says what to install.
    """
    if lacking := missing():
        raise MissingExtraError(
            f"the laboratory and the command line need {', '.join(lacking)}, which you get with "
            'pip install "natgrad[lab]".'
        )
