"""Programs that take turns on one machine, and what their times say. Used by bench/compare.py.

A program that takes part reads a number of steps from a line of its standard input and answers with a line of JSON
{"seconds": [..], "losses": [..]}. All are started before the first turn, and stand still (SIGSTOP) between theirs, so
that each has both cores, its compiled code and its memory when it is asked, and no other program's threads beside it.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import time


class Stopped(Exception):
    """A program that takes part has ended or said something else than an answer; `log`: what it wrote, if it is one."""

    def __init__(self, what, log=None):
        super().__init__(what)
        self.log = log


def descendants(process):
    """The ids of a process and of all that it started, from /proc."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                pass
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


class Contestant:
    """A program that takes part; `name` as it is printed."""

    def __init__(self, name, command, environment=None):
        self.name, self.losses = name, []
        file = "".join(c if c.isalnum() else "-" for c in name) + ".log"
        self.log = os.path.join(os.environ.get("COMPARE_LOGS", "."), file)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                            env=os.environ | (environment or {}))
        self.ready = self._answer()
        self._pause()

    def _say(self, what):
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {what}", file=sys.stderr, flush=True)

    def _answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        with open(self.log) as log:
            raise Stopped(f"{self.name}: ended without an answer:\n" + "".join(log.readlines()[-12:]), self.log)

    def _signal(self, which):
        for process in descendants(self.process.pid):
            try:
                os.kill(process, which)
            except ProcessLookupError:
                pass

    def _pause(self):
        self._signal(signal.SIGSTOP)

    def turn(self, steps):
        """The seconds of each of `steps` steps."""
        self._signal(signal.SIGCONT)
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer = self._answer()
        self._pause()
        self.losses += answer["losses"]
        self._say("seconds of a step " + " ".join(f"{s:.4f}" for s in answer["seconds"][:6]))
        return answer["seconds"]

    def memory(self, what):
        """Bytes of `what` (VmRSS, VmHWM) of the process."""
        with open(f"/proc/{self.process.pid}/status") as file:
            for line in file:
                if line.startswith(what + ":"):
                    return 1024 * int(line.split()[1])
        raise Stopped(f"{self.name}: no {what} in its /proc/PID/status")

    def forget_peak(self):
        """VmHWM counts anew from what is resident now."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
            file.write("5")

    def close(self):
        self._signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Numbers:
    """What was measured of one thing, a value for each round."""

    def __init__(self, values):
        self.values = sorted(values)
        self.median = statistics.median(values)

    def text(self, form="{:.2f}"):
        """The median, and the spread behind it."""
        low, high = form.format(self.values[0]), form.format(self.values[-1])
        return f"{form.format(self.median)} ({low} to {high})"


def rounds(contestants, steps, count, between=lambda: None):
    """`count` rounds in which each contestant has a turn of `steps` steps: {name: [median seconds of each round]}. Each
    round begins with another one, so that none always follows the same program, or the measurement `between` rounds."""
    seconds = {one.name: [] for one in contestants}
    for round_ in range(count):
        between()
        first = round_ % len(contestants)
        for one in contestants[first:] + contestants[:first]:
            seconds[one.name].append(statistics.median(one.turn(steps)))
    return seconds


def ratios(slower, faster):
    """slower / faster, round by round: how many times as quick `faster` is."""
    return Numbers([a / b for a, b in zip(slower, faster)])


def losses_apart(one, other):
    """The largest relative difference of the losses of the first 20 steps that both have done. Later ones are further
    apart, because training amplifies what rounding began."""
    pairs = list(zip(one.losses, other.losses))[:20]
    if not pairs:
        raise Stopped(f"{one.name} and {other.name} have no step in common")
    return max(abs(a - b) / abs(b) for a, b in pairs)
