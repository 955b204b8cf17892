"""`{picture}`: a picture of a notebook beside the lines that draw it, both as committed."""

import base64
import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def setup(app: Any) -> None:
    app.add_directive("picture", Picture)


def picture_of(notebook: Path, words: str) -> tuple[str, bytes]:
    """The source of the first cell with these words that drew a picture, and the picture."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        for output in cell.get("outputs", []) if words in source else []:
            if png := output.get("data", {}).get("image/png"):
                return source, base64.b64decode("".join(png))
    raise LookupError(f"no cell of {notebook.name} with {words!r} drew a picture")


class Picture(SphinxDirective):
    """The notebook's name, and words of the cell; the content is the text alternative."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[Any]:
        name, _, words = self.arguments[0].partition(" ")
        path = NOTEBOOKS / f"{name}.ipynb"
        self.env.note_dependency(str(path))
        try:
            source, png = picture_of(path, words)
        except (LookupError, OSError) as error:
            raise self.error(str(error)) from error
        written = Path(self.env.srcdir) / "pictures" / f"{name}_{self.env.new_serialno(name)}.png"
        written.parent.mkdir(exist_ok=True)
        written.write_bytes(png)
        picture = nodes.image(uri=f"/pictures/{written.name}", alt=" ".join(self.content))
        return [picture, nodes.literal_block(source, source, language="python")]
