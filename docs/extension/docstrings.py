"""Docstrings that were written to be read in an editor, as reStructuredText.

Formulas stand in indented blocks, which are no quotations; several arguments share a line, and the
line may be broken; bars stand about absolute values.
"""

import re
from typing import Any

SECTION = re.compile(
    r"^(Args|Arguments|Attributes|Example|Examples|Keyword Args|Note|Notes|Raises|Reference|"
    r"References|Returns|Shapes|Source|Terms|Warning|Warnings|Warns|Yields):\s*$"
)
LIST = re.compile(r"^\s*([-*+•]|\d+[.)]|\.\.|>>>|\||=+)(\s|$)")
NAMES = re.compile(r"^    (?! )[\w*, ]+,$")
BAR = re.compile(r"(?<!\w)\|(?=\S)")


def setup(app: Any) -> None:
    # Before napoleon, which is connected at 500 and indents what stands in its sections.
    app.connect("autodoc-process-docstring", readable, priority=400)


def readable(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Mend a docstring's lines in place."""
    lines[:] = with_literal_blocks(with_joined_names(lines))
    if what in ("attribute", "property", "data"):
        # Napoleon takes what stands before a colon in the first line for a type.
        lines[:0] = [".. a comment", ""]


def with_literal_blocks(lines: list[str]) -> list[str]:
    """Mark the indented blocks of the prose as literal."""
    done: list[str] = []
    in_section = in_list = literal = False
    for number, line in enumerate(lines):
        if line and not line.startswith("    "):
            literal = False
        if line and not line.startswith(" "):
            in_section = bool(SECTION.match(line))
            in_list = bool(LIST.match(line))
        begins = line.startswith("    ") and number > 0 and not lines[number - 1].strip()
        before = next((text for text in reversed(done) if text.strip()), "")
        if (
            begins
            and not (in_section or in_list or LIST.match(line))
            and not before.startswith(" ")
            and not before.rstrip().endswith("::")
        ):
            done += ["::", ""]
            literal = True
        done.append(line if literal else outside_code(line))
    return done


def with_joined_names(lines: list[str]) -> list[str]:
    """Put the names of arguments that are described together on one line."""
    done: list[str] = []
    joined, section = "", ""
    for line in lines:
        if found := SECTION.match(line):
            section = found[1]
        if not joined and not NAMES.match(line):
            done.append(line)
            continue
        joined = f"{joined} {line.strip()}".strip()
        names, colon, rest = joined.partition(":")
        if colon:
            # Attributes are described one by one, arguments may share a description.
            each = names.split(", ") if section == "Attributes" else [names]
            done += [f"    {name}: {rest.strip()}" for name in each]
            joined = ""
    return done


def outside_code(line: str) -> str:
    """Escape the bars of absolute values, which would be substitutions."""
    if line.startswith("    ") and LIST.match(line):
        return line
    parts = line.split("`")
    parts[::2] = [BAR.sub(r"\\|", part) for part in parts[::2]]
    return "`".join(parts)
