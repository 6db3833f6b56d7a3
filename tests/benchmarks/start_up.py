"""How long `mtkit --help` takes, and `echo … | mtkit translate MODEL` to its first line.

    start_up.py [MODEL] [--runs 5]

Wall time of the whole process, median of the runs, the first run (cold files) shown apart. Without MODEL only the help.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time


def seconds_of(command: list[str], text: bytes) -> float:
    begun = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin and process.stdout
    process.stdin.write(text)
    process.stdin.close()
    process.stdout.readline()
    first_line = time.monotonic() - begun
    process.stdout.read()
    if process.wait():
        sys.exit(f"{' '.join(command)}: status {process.returncode}")
    return first_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    mtkit = [sys.executable, "-m", "mtkit"]
    tasks = {"mtkit --help": ([*mtkit, "--help"], b"")}
    if options.model:
        tasks["mtkit translate, to the first line"] = ([*mtkit, "translate", options.model], b"A dog runs.\n")
    for name, (command, text) in tasks.items():
        first, *rest = [seconds_of(command, text) for _ in range(options.runs + 1)]
        print(f"{name}: median {statistics.median(rest):.2f} s, most {max(rest):.2f} s, first {first:.2f} s")


if __name__ == "__main__":
    main()
