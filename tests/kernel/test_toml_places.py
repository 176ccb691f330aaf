"""A fault in a settings file is told with the line and column of its key."""

import time
import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.toml_places import NESTED_MAX, PARTS_MAX, Place, TooDeep, key_places, parsed_toml

DOCUMENT = '''# a comment with [brackets] and "quotes"
top = "a # that is no comment"   # and one that is
[node]
directory = 'C:\\path'
name="x"
  indented = [1, 2, # in an array
    { deep = 1 }, "]"]
text = """
[not.a.table]
key = 1 "" \\"""
"""
[ spaced . "quoted.part" ]
"b\\u0063" = { inner = 1, "other one" = { leaf = [] } }
dotted.key = 1979-05-27T07:32:00Z
[[rules]]
principal = "a"
[[rules]]
principal = "b"
[rules.more]
x = 1
[[rules.nested]]
y = 1
'''


def test_every_kind_of_key_is_found_where_it_stands() -> None:
    tomllib.loads(DOCUMENT)
    places = key_places(DOCUMENT)
    expected = {
        ("top",): (2, 1),
        ("node",): (3, 1),
        ("node", "directory"): (4, 1),
        ("node", "name"): (5, 1),
        ("node", "indented"): (6, 3),
        ("node", "indented", 2, "deep"): (7, 7),
        ("node", "text"): (8, 1),
        ("spaced", "quoted.part"): (12, 1),
        ("spaced", "quoted.part", "bc"): (13, 1),
        ("spaced", "quoted.part", "bc", "inner"): (13, 15),
        ("spaced", "quoted.part", "bc", "other one", "leaf"): (13, 42),
        ("spaced", "quoted.part", "dotted", "key"): (14, 1),
        ("rules", 0): (15, 1),
        ("rules", 0, "principal"): (16, 1),
        ("rules", 1): (17, 1),
        ("rules", 1, "more", "x"): (20, 1),
        ("rules", 1, "nested", 0, "y"): (22, 1),
    }
    assert {path: places.get(path) for path in expected} == {path: Place(*place) for path, place in expected.items()}
    assert ("not", "a", "table") not in places


names = st.text("abc-_9", min_size=1, max_size=3)
scalars = st.sampled_from(["1", "true", "'[a]'", '"x\\"]"', "[ 1, [2], {} ]", "1.5e3", "'''\n[x]\n'''", '""'])


@given(st.dictionaries(names, st.dictionaries(names, scalars, max_size=4), max_size=4))
def test_every_key_of_a_generated_document_is_found_on_its_line(document: dict[str, dict[str, str]]) -> None:
    lines, expected = [], {}
    for section, table in document.items():
        expected[(section,)] = sum(line.count("\n") + 1 for line in lines) + 1
        lines.append(f"[{section}]")
        for name, value in table.items():
            expected[(section, name)] = sum(line.count("\n") + 1 for line in lines) + 1
            lines.append(f"  {name} = {value}")
    text = "\n".join(lines)
    tomllib.loads(text)
    assert {
        path: place.line for path, place in key_places(text).items() if len(path) < 3 and path in expected
    } == expected


A_SIZE = 1 << 20
FLOODS = {
    "a table": ("[b]\n[" + "a." * (A_SIZE // 2) + "a]", Place(2, 2 + 2 * PARTS_MAX - 1)),
    "tables in an array": ("\n[[" + "a." * (A_SIZE // 2) + "a]]", Place(2, 3 + 2 * PARTS_MAX - 1)),
    "a key": ("a." * (A_SIZE // 2) + "a = 1", Place(1, 2 * PARTS_MAX)),
    "a key of quoted parts": ("'.' . " * (A_SIZE // 6) + "a = 1", Place(1, 6 * PARTS_MAX - 1)),
    "an array": ("a = " + "[" * A_SIZE, Place(1, 5 + NESTED_MAX)),
    "lines of an array": ("a = " + "[ # [\n" * (A_SIZE // 6), Place(NESTED_MAX + 1, 1)),
    "tables in one line": ("a = " + "{a=" * (A_SIZE // 3), Place(1, 5 + 3 * NESTED_MAX)),
    "brackets alone": ("[" * A_SIZE, Place(1, 1 + NESTED_MAX)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_what_is_nested_deeper_than_anybody_needs_is_refused_at_its_place_before_it_is_read(flood: str) -> None:
    text, place = FLOODS[flood]
    began_s = time.process_time()
    with pytest.raises(TooDeep, match=rf"at most ({NESTED_MAX}|{PARTS_MAX})") as caught:
        parsed_toml(text)
    assert caught.value.place == place
    assert time.process_time() - began_s < 1


def test_what_is_as_deep_as_it_may_be_is_read() -> None:
    key, array = ".".join("a" * PARTS_MAX), "[" * NESTED_MAX + "]" * NESTED_MAX
    for text in (f"{key} = {array}", f"[{key}]\n{key} = 1.5", f"[[{key}]]", f"a = [{'[1.5,], ' * 1000}]"):
        assert parsed_toml(text) == tomllib.loads(text)


def test_brackets_and_dots_in_strings_and_comments_do_not_count() -> None:
    many = "[." * 1000
    text = f"""# {many}
'{many}' = '{many}' # {many}
"\\"{many}" = "\\"{many}"
three = '''{many}'
{many}''''
and = \"\"\"{many}"
\\\"{many}\"\"\"\"\"
"""
    assert parsed_toml(text) == tomllib.loads(text)


@pytest.mark.parametrize("quotes", ['"""', "'''", '"', "'"])
def test_a_string_without_an_end_is_told_by_the_reader_at_once(quotes: str) -> None:
    text = f"a = {quotes}" + (" \\" + 3 * quotes[0] if quotes[0] == '"' else "' ") * (A_SIZE // 5)
    began_s = time.process_time()
    with pytest.raises(tomllib.TOMLDecodeError):
        parsed_toml(text)
    assert time.process_time() - began_s < 5


@given(st.text("""ab."'[]{}=,#\\ \n1""", max_size=60))
def test_what_is_not_nested_deep_is_read_as_the_library_reads_it(text: str) -> None:
    assert result_of(parsed_toml, text) in (result_of(tomllib.loads, text), "too deep")


def result_of(read: Callable[[str], object], text: str) -> object:
    try:
        return read(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    except TooDeep:
        return "too deep"
