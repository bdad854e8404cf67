"""The Markdown table of stored results."""


def _line(line):
    met = {True: "yes", False: "**no**", None: ""}[line.get("met")]
    return f"| {line['case']} | {line['value']} | {line.get('target', '')} | {met} | {line.get('note', '')} |"


def table(records):
    """records: what bench/compare.py stores of each row."""
    parts = []
    for record in records:
        parts.append(f"`{record['command']}`, {record['date']}, commit {record['commit']}, {record['machine']}, "
                     f"{record['seconds']} s:\n")
        parts.append("| case | median (lowest to highest) | target | reached | besides |\n|---|---|---|---|---|")
        parts += [_line(line) for line in record["lines"]]
        parts.append("")
    return "\n".join(parts)
