import json

import pytest

from pliska.locks.presentation import OutputFormat, show_rows

HOSTILE = "[/x] [red]q[/red] :smile: \x1b[31m\n"


def test_words_of_others_are_shown_as_text_and_never_as_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_rows(OutputFormat.TABLE, "rows", ["reason"], [{"reason": HOSTILE}])
    shown = capsys.readouterr().out
    assert "[/x] [red]q[/red] :smile: " in shown
    assert "\x1b" not in shown


def test_json_keeps_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(OutputFormat.JSON, "rows", [], [{"reason": HOSTILE}])
    assert json.loads(capsys.readouterr().out)["rows"] == [{"reason": HOSTILE}]
