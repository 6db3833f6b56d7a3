"""The app, and the one place that turns an error into a message and an exit status."""

from __future__ import annotations

import functools
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer

from mtkit import __version__
from mtkit.cli import (
    attention,
    average,
    bleu,
    compare,
    data,
    evaluate,
    model,
    recipe,
    reproduce,
    score,
    tokenize,
    train,
    translate,
)
from mtkit.errors import MtkitError, first_line, is_out_of_memory

app = typer.Typer(
    name="mtkit",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Train, run and compare the translators that lead from the first encoder-decoder to the Transformer.\n\n"
    "Example: mtkit train mine.yaml && echo 'The dog sleeps.' | mtkit translate runs/mine",
)

_debug = False


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mtkit {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and leave")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show a traceback with an error")] = False,
) -> None:
    """Options of every command."""
    global _debug
    _debug = debug


def speaking_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Run a command; an error becomes one line on stderr and an exit status, a closed pipe ends it quietly.

    With --debug the traceback comes before the line.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            if not _reader_of_stdout_has_left():
                raise typer.Exit(1) from None
            # Python would complain at exit about the unflushed rest; give it a place to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(128 + signal.SIGINT) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if _debug:
                traceback.print_exc()
            print(f"mtkit: {_message(error)}", file=sys.stderr)
            raise typer.Exit(error.exit_status if isinstance(error, MtkitError) else 1) from error

    return wrapped


def _message(error: Exception) -> str:
    """What a reader can do something with."""
    if isinstance(error, MtkitError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror or error}" if error.filename else str(error.strerror or error)
    if is_out_of_memory(error):
        return f"out of memory ({first_line(error)})"
    # No one foresaw it: a fault of mtkit.
    return f"{type(error).__name__}: {first_line(error)}; mtkit --debug shows where, and helps us to mend it"


def _reader_of_stdout_has_left() -> bool:
    """Whether it is stdout whose pipe has broken, and not another one."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _register(group: typer.Typer) -> typer.Typer:
    for info in group.registered_commands:
        if info.callback is not None:
            info.callback = speaking_errors(info.callback)
    return group


app.command("train")(speaking_errors(train.train))
app.command("translate")(speaking_errors(translate.translate))
app.command("score")(speaking_errors(score.score))
app.command("average")(speaking_errors(average.average))
app.command("bleu")(speaking_errors(bleu.bleu))
app.command("evaluate")(speaking_errors(evaluate.evaluate))
app.command("attention")(speaking_errors(attention.attention))
app.command("compare")(speaking_errors(compare.compare))
app.command("reproduce")(speaking_errors(reproduce.reproduce))
app.command("info")(speaking_errors(model.info))
app.command("models")(speaking_errors(model.models))
app.add_typer(_register(tokenize.tokenize_app), name="tokenize")
app.add_typer(_register(data.data_app), name="data")
app.add_typer(_register(recipe.recipe_app), name="recipe")
