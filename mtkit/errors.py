"""Every message that a user can see is raised as one of these; the command line turns it into an exit status."""


class MtkitError(Exception):
    """The work failed: exit status 1. The text is one message: what is wrong, where, what to do."""

    exit_status = 1


class TrainingError(MtkitError):
    """Training cannot go on: a diverged loss, a full disk, memory that is not there."""


class DivergedError(TrainingError):
    """Numbers of a model that are not finite: its losses in training, or the probabilities it gives afterwards."""


class RequestError(MtkitError):
    """The request was wrong: exit status 2, and nothing has been written."""

    exit_status = 2


class RecipeError(RequestError):
    """A recipe that cannot be used. Text: `file: key: what is wrong[; cure]`."""


class DataError(RequestError):
    """Text that cannot be used: a missing file, unequal line counts, an empty corpus."""


class ModelError(RequestError):
    """A folder that holds no model, or not the one that is needed."""


def first_line(error: BaseException) -> str:
    """What an error says first, or its kind where it says nothing."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out, in the words of Python, CUDA or torch's CPU allocator."""
    text = str(error)
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text
