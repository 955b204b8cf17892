"""Write the list of public names: `python docs/public_names.py`, at a release."""

from pathlib import Path

from extension.public import every_name

LIST = Path(__file__).parent / "public_names.txt"

if __name__ == "__main__":
    LIST.write_text("\n".join(sorted(every_name())) + "\n", encoding="utf-8")
