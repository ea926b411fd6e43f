import tomllib

from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.wire.toml_lines import TomlLines

EVERYTHING = '''\
# [comment] with = signs
top = "a = 1 # not a comment"
"quoted.key" = 1
dotted . inner = 2
  [spaced . "table"]   # trailing
literal = 'C:\\path # no'
multi = """
fake = 1
[fake]
""\\"""" # end
raw = \'\'\'
also_fake = 2''\'\'\'
after = 1
list = [ "]", # }
  { within = 1 },
  [2, 3],
]
inline = { one = 1, two = { three = "}" }, "four" = [4] }
last = 1979-05-27T07:32:00Z
[[repeated]]
x = 1
[[repeated]]
x = 2
'''


def test_every_key_is_found_on_its_line() -> None:
    lines = TomlLines(EVERYTHING)
    expected = {
        ("top",): 2,
        ("quoted.key",): 3,
        ("dotted",): 4,
        ("dotted", "inner"): 4,
        ("spaced",): 5,
        ("spaced", "table"): 5,
        ("spaced", "table", "literal"): 6,
        ("spaced", "table", "multi"): 7,
        ("spaced", "table", "raw"): 11,
        ("spaced", "table", "after"): 13,
        ("spaced", "table", "list"): 14,
        ("spaced", "table", "inline", "two", "three"): 18,
        ("spaced", "table", "inline", "four"): 18,
        ("spaced", "table", "last"): 19,
        ("repeated", "x"): 21,
    }
    tomllib.loads(EVERYTHING)
    assert {path: lines.line_of(path) for path in expected} == expected


def test_text_within_values_and_comments_is_no_key() -> None:
    lines = TomlLines(EVERYTHING)
    assert lines.line_of(("comment",)) == 1
    assert lines.line_of(("spaced", "table", "fake")) == 5
    assert lines.line_of(("spaced", "table", "also_fake")) == 5


def test_an_absent_key_is_on_the_line_of_its_table() -> None:
    assert TomlLines("a = 1\n\n[rule]\nname = 'x'\n").line_of(("rule", "f")) == 3


def test_windows_line_ends_count_once() -> None:
    assert TomlLines("a = 1\r\n\r\nb = 2\r\n").line_of(("b",)) == 3


_texts = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=20)
_values = st.recursive(
    st.one_of(st.booleans(), st.integers(-9, 9), _texts),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


def _basic_string(text: str) -> str:
    escaped = "".join(
        f"\\U{ord(each):08x}" if ord(each) < 32 or each in '"\\\x7f' else each for each in text
    )
    return f'"{escaped}"'


def _written(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return _basic_string(value)
        case list():
            return "[ # ]\n" + ",\n".join(_written(item) for item in value) + "\n]"
        case dict():
            pairs = (f"{_basic_string(key)} = {_written(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"
    raise AssertionError(value)


@given(st.dictionaries(_texts, _values, max_size=5))
def test_keys_after_any_values_are_found(document: dict[str, object]) -> None:
    text, starts = "", {}
    for key, value in document.items():
        starts[key] = text.count("\n") + 1
        text += f"{_basic_string(key)} = {_written(value)}\n"
    assert tomllib.loads(text) == document
    lines = TomlLines(text)
    assert {key: lines.line_of((key,)) for key in document} == starts
