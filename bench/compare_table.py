"""Lines of results {case, value, target, met, note}, and the Markdown table of stored ones."""


def line(case, numbers, target=None, note="", form="{:.2f}"):
    """`numbers` shall be at least `target`."""
    value = numbers.text(form)
    if target is None:
        return {"case": case, "value": value, "note": note}
    return {"case": case, "value": value, "target": f"{target:g}", "met": numbers.median >= target, "note": note}


def at_most(case, value, target, note=""):
    return {"case": case, "value": f"{value:.2f}", "target": f"at most {target:g}", "met": value <= target, "note": note}


def plain(case, value, note=""):
    """Without a target."""
    return {"case": case, "value": f"{value:.2f}", "note": note}


def _line(line):
    met = {True: "yes", False: "**no**", None: ""}[line.get("met")]
    return f"| {line['case']} | {line['value']} | {line.get('target', '')} | {met} | {line.get('note', '')} |"


def table(records):
    """records: what bench/compare.py stores of each row."""
    parts = []
    for record in records:
        programs = "; ".join(f"{name} {version}" for name, version in record["programs"].items())
        parts.append(f"`{record['command']}`, {record['date']}, {record['machine']}, {record['seconds']} s. {programs}:\n")
        parts.append("| case | median (lowest to highest) | target | reached | besides |\n|---|---|---|---|---|")
        parts += [_line(line) for line in record["lines"]]
        parts.append("")
    return "\n".join(parts)
