#!/usr/bin/env python3
"""Triax's training on CPUs beside PyTorch's, and its grids beside one rank, in turns: the table of docs/performance.md.

    make && scripts/setup --bench               the program; oneDNN, and what PyTorch's compiler needs
    python=$(scripts/python_env torch numpy h5py pyyaml)
    $python bench/compare.py --prepare          weights, tokens, PyTorch's compiled code; times of its variants
    $python bench/compare.py                    measures every row
    $python bench/compare.py gpt2 small         some of them
    $python bench/compare.py --write            puts the tables of all that was measured into docs/performance.md

Each row is done in rounds in which every program has a turn (bench/contest.py); ratios are taken within a round, and
their median and extremes are printed. Programs must compute the same losses on the same weights and tokens, or the row
is refused. A row takes from a second (start) to some ten minutes. Results lie in build/compare/results, a file for each
row.
"""
import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from compare_bench import Bench  # noqa: E402
from compare_rows import ROWS  # noqa: E402
from compare_table import table  # noqa: E402
from contest import Stopped  # noqa: E402

ROOT = HERE.parent
PAGE = ROOT / "docs" / "performance.md"
ELSEWHERE = "llmc-elsewhere"  # the record of row llmc without llm.c: none that may take the place of a comparison
BEGIN, END = "<!-- table: bench/compare.py --write -->", "<!-- end of table -->"


def machine():
    with open("/proc/cpuinfo") as file:
        fields = [line.split(":", 1) for line in file if ":" in line]
    first = {key.strip(): value.strip() for key, value in reversed(fields)}
    kind = f"family {first.get('cpu family', '?')}, model {first.get('model', '?')}"
    return f"{first.get('model name', 'unknown')} ({kind}), {len(os.sched_getaffinity(0))} cores"


def program(triax):
    """Which program was measured: its version, the commit that it was built from, and its hash. The commit is that of
    the source tree that its build folder belongs to, if the program is newer than all of its sources."""
    triax = Path(triax).resolve()
    version = subprocess.run([triax, "version"], check=True, capture_output=True, text=True).stdout.split()[1]
    digest = hashlib.sha256(triax.read_bytes()).hexdigest()[:12]
    return f"{version}, {source_of(triax)}, sha256 {digest}"


def source_of(triax):
    cache = triax.parent / "CMakeCache.txt"
    home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(), re.M) if cache.exists() else None
    if not home:
        return "of an unknown commit"
    git = lambda *words: subprocess.run(["git", "-C", home[1], *words], capture_output=True, text=True).stdout  # noqa: E731
    sources = ("--", "*.cpp", "*.h", ":!tests")
    files = git("ls-files", *sources).split()
    built = max(path.stat().st_mtime for path in [triax, *triax.parent.glob("lib/*.so")])
    if not files or any(not (source := Path(home[1], name)).exists() or source.stat().st_mtime > built for name in files):
        return "older than its sources"
    changed = ", with changes" if git("diff", "--name-only", "HEAD", *sources) else ""
    return "commit " + git("rev-parse", "--short", "HEAD").strip() + changed


def tables_of(page):
    """The tables that stand between the marks, by their rows: the text behind each one's line of its command."""
    inside = page.partition(BEGIN)[2].partition(END)[0]
    parts = re.split(r"^(?=`bench/compare\.py )", inside, flags=re.M)[1:]
    return {part.split()[1].strip("`"): part.strip() + "\n" for part in parts}


def write(results):
    """Puts what is stored into the page; a row that has no record keeps what stands there."""
    page = PAGE.read_text()
    standing, parts, kept = tables_of(page), [], []
    for row in ROWS:
        path = results / f"{row}.json"
        if row == "llmc" and not path.exists() and "--llmc" not in standing.get(row, ""):
            path = results / f"{ELSEWHERE}.json"
        if path.exists():
            parts.append(table([json.loads(path.read_text())]))
        elif row in standing:
            parts.append(standing[row])
            kept.append(row)
    PAGE.write_text(page.partition(BEGIN)[0] + BEGIN + "\n\n" + "\n".join(parts) + "\n" + END + page.partition(END)[2])
    if kept:
        print(f"compare: kept as they stand in {PAGE.name}, for want of a stored record: {', '.join(kept)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Rows: " + ", ".join(ROWS))
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all")
    parser.add_argument("--triax", default=str(ROOT / "build" / "triax"))
    parser.add_argument("--folder", default=str(ROOT / "build" / "compare"), help="for inputs and results")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prepare", action="store_true", help="make what the rows need; time PyTorch's variants")
    parser.add_argument("--torch", action="append", metavar="VARIANT",
                        help="of PyTorch this one (bench/compare_cases.py), instead of those that --prepare found best")
    parser.add_argument("--llmc", metavar="FOLDER",
                        help="a checkout of llm.c, which row llmc then compiles and compares with")
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
        write(results)
        return
    if not Path(arguments.triax).exists():
        parser.error(f"{arguments.triax} is missing: `make` builds build/triax")
    if arguments.llmc and not (Path(arguments.llmc) / "train_gpt2.c").exists():
        parser.error(f"--llmc {arguments.llmc}: no checkout of llm.c, it has no train_gpt2.c; "
                     "git clone https://github.com/karpathy/llm.c gives one")
    bench = Bench(arguments.triax, folder, arguments.rounds, arguments.hold, arguments.torch, arguments.llmc)
    for row in arguments.rows or ROWS:
        if arguments.prepare:
            bench.prepare(row)
            continue
        begin = time.time()
        bench.programs = {"Triax": program(arguments.triax)}
        try:
            lines = ROWS[row](bench)
        except Stopped as stopped:
            raise SystemExit(f"compare: {stopped}") from None
        command, name = f"bench/compare.py {row} --rounds {arguments.rounds}", row
        if row == "llmc" and arguments.llmc:
            command += " --llmc FOLDER"
        elif row == "llmc":
            name = ELSEWHERE
        record = {"row": row, "date": time.strftime("%Y-%m-%d"), "machine": machine(), "command": command,
                  "programs": bench.programs, "seconds": round(time.time() - begin), "lines": lines}
        (results / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        print(table([record]), flush=True)


main()
