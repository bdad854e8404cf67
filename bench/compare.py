#!/usr/bin/env python3
"""Triax's training on CPUs beside PyTorch's, and its grids beside one rank, in turns: the table of docs/performance.md.

    python=$(scripts/python_env torch numpy h5py pyyaml)
    $python bench/compare.py --prepare          weights, tokens, PyTorch's compiled code; times of its variants
    $python bench/compare.py                    measures every row
    $python bench/compare.py gpt2 small         some of them
    $python bench/compare.py --write            puts the table of all that was measured into docs/performance.md

Each row is done in rounds in which every program has a turn (bench/contest.py); ratios are taken within a round, and
their median and extremes are printed. Programs must compute the same losses on the same weights and tokens, or the row
is refused. A row takes one to two minutes. Results lie in build/compare/results, a file for each row.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare_rows import ROWS, Bench  # noqa: E402
from compare_table import table  # noqa: E402

ROOT = HERE.parent
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- table: bench/compare.py --write -->", "<!-- end of table -->"


def machine():
    with open("/proc/cpuinfo") as file:
        fields = [line.split(":", 1) for line in file if ":" in line]
    first = {key.strip(): value.strip() for key, value in reversed(fields)}
    return (f"{first.get('model name', 'unknown')} (family {first.get('cpu family', '?')}, model {first.get('model', '?')}), "
            f"{len(os.sched_getaffinity(0))} cores")


def commit():
    said = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Rows: " + ", ".join(ROWS))
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all")
    parser.add_argument("--triax", default=str(ROOT / "build" / "triax"))
    parser.add_argument("--folder", default=str(ROOT / "build" / "compare"), help="for inputs and results")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--prepare", action="store_true", help="make what the rows need; of PyTorch's variants find the best")
    parser.add_argument("--torch", action="append", metavar="VARIANT",
                        help="of PyTorch this one (bench/compare_cases.py), instead of the best that --prepare found")
    parser.add_argument("--llmc", metavar="FOLDER", help="a checkout of llm.c, which row llmc then compiles and compares with")
    parser.add_argument("--hold", action="store_true",
                        help="wait for a line of the standard input between the warm-up and the rounds of a row, for "
                             "whoever makes the machine quiet for the latter")
    parser.add_argument("--write", action="store_true", help="write the stored results into docs/performance.md")
    arguments = parser.parse_args()
    unknown = [row for row in arguments.rows if row not in ROWS]
    if unknown:
        parser.error(f"unknown rows: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    folder = Path(arguments.folder)
    results = folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    if arguments.write:
        stored = [json.loads((results / f"{row}.json").read_text()) for row in ROWS if (results / f"{row}.json").exists()]
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(before + BEGIN + "\n\n" + table(stored) + "\n" + END + after)
        return
    bench = Bench(arguments.triax, folder, arguments.rounds, arguments.hold, arguments.torch, arguments.llmc)
    for row in arguments.rows or ROWS:
        if arguments.prepare:
            bench.prepare(row)
            continue
        begin = time.time()
        lines = ROWS[row](bench)
        command = f"bench/compare.py {row} --rounds {arguments.rounds}"
        if row == "llmc" and arguments.llmc:
            command += " --llmc FOLDER"
        record = {"row": row, "date": time.strftime("%Y-%m-%d"), "commit": commit(), "machine": machine(), "command": command,
                  "seconds": round(time.time() - begin), "lines": lines}
        (results / f"{row}.json").write_text(json.dumps(record, indent=1) + "\n")
        print(table([record]), flush=True)


main()
