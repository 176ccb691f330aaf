"""A fault in a settings file is told with the line and column of its key."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.toml_places import Place, key_places

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
