"""What a result is in a notebook: a table, and the headline with the picture."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any

from escounts.errors import OutputError
from escounts.output.png import figure
from escounts.output.text import headline, places, region_of, shown_reasons
from escounts.results import CountResult


def dataframe(result: CountResult) -> Any:
    """A row per repetition; times in seconds."""
    try:
        import pandas  # noqa: PLC0415 - optional: users bring it
    except ImportError as error:
        raise OutputError("a DataFrame needs pandas; install it with: pip install pandas") from error
    rows = [
        {
            "start_s": one.start,
            "end_s": one.end,
            "seconds": one.end - one.start,
            "score": one.score,
            "region": region_of(result, one),
        }
        for one in result.repetitions
    ]
    return pandas.DataFrame(rows, columns=["start_s", "end_s", "seconds", "score", "region"])


def html(result: CountResult) -> str:
    """The lines above the terminal's plot, and the picture."""
    lines = [f"<b>{escape(headline(result))}</b>", *map(escape, [*shown_reasons(result), *places(result)])]
    text = f"<p>{'<br>'.join(lines)}</p>"
    try:
        drawn = figure(result)
    except OutputError:  # matplotlib is not installed
        return text
    data = io.BytesIO()
    drawn.savefig(data, format="png", dpi=90)
    coded = base64.b64encode(data.getvalue()).decode("ascii")
    return f'{text}<img alt="density and running count" src="data:image/png;base64,{coded}">'
