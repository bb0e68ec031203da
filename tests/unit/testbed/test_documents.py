import pickle
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest

from testbed.documents import NOTHING, DocumentError, Matches, Model, Part, UInt16


class Inner(Part):
    kept: int = 0


class Outer(Model):
    name: str
    number: float = 1.5
    port: UInt16 | None = None
    kind: Literal["a", "b"] = "a"
    inner: tuple[Inner, ...] = ()
    table: Mapping[str, Mapping[str, Inner]] = NOTHING
    either: Inner | str = ""
    anything: Any = None
    pair: tuple[Annotated[str, Matches("[a-z]", "a letter")], int] | None = None
    import_: bool = False


class Wider(Outer):
    more: int


FULL: dict[str, Any] = {
    "name": "x", "number": 3, "port": None, "kind": "b", "inner": [{"kept": 1, "later": [2]}],
    "table": {"a": {"b": {}}}, "either": "text", "anything": {"x": [1, None]}, "pair": ["c", 3], "import": True,
}  # fmt: skip


@pytest.mark.parametrize("document", [{"name": "x"}, FULL])
def test_a_document_that_is_read_and_written_is_the_same(document: dict[str, Any]) -> None:
    read = Outer.read(document)
    assert read.as_json() == document
    assert type(read.as_json().get("number", 3)) is int
    assert Outer.read(read.as_json()) == read
    assert pickle.loads(pickle.dumps(read)) == read


def test_absent_fields_have_defaults_and_do_not_become_given() -> None:
    read = Outer.read({"name": "x"})
    assert (read.number, read.port, read.inner, read.table) == (1.5, None, (), {})
    assert read.complete()["number"] == 1.5
    assert read == Outer(name="x", number=1.5)
    assert Outer.make(name="x", port=None).as_json() == {"name": "x"}
    assert read.replace(port=7).as_json() == {"name": "x", "port": 7}
    assert read.port is None


def test_a_class_adds_fields_to_those_of_its_base() -> None:
    assert Wider.read({"name": "x", "more": 1}).as_json() == {"name": "x", "more": 1}
    assert Wider.field_names() == Outer.field_names() | {"more"}
    assert Wider(name="x", more=1) != Outer(name="x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nam": 1}, "nam: unknown field; did you mean 'name'?"),
        ({"number": "3"}, "number: expected a number, found '3'"),
        ({"number": float("nan")}, "number: expected a number, found nan"),
        ({"number": 10**400}, f"number: expected a number, found 1{'0' * 79}..."),
        ({"pair": ["a", 1, 2]}, "pair: expected a list of 2, found a list"),
        ({"pair": ["ab", 1]}, "pair.0: expected a letter, found 'ab'"),
        ({"number": True}, "number: expected a number, found True"),
        ({"name": None}, "name: expected a text, found null"),
        ({"port": 65_536}, "port: expected an integer from 0 to 65535, found 65536"),
        ({"port": 1.5}, "port: expected an integer, found 1.5"),
        ({"kind": "c"}, "kind: expected a or b, found 'c'"),
        ({"inner": {}}, "inner: expected a list, found an object"),
        ({"inner": [{}, {"kept": "x" * 100}]}, f"inner.1.kept: expected an integer, found '{'x' * 79}..."),
        ({"table": {"a": {"b": 1}}}, "table.a.b: expected an object, found 1"),
        ({"either": 3}, "either: expected a text, found 3"),
        ({"import": 1}, "import: expected true or false, found 1"),
    ],
)
def test_an_error_has_the_path_of_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        Outer.read({"name": "x", **change})
    assert str(caught.value) == message


@pytest.mark.parametrize(("document", "message"), [([], "expected an object, found a list"), ({}, "name: missing")])
def test_a_document_needs_its_form(document: Any, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        Outer.read(document)
    assert str(caught.value) == message


def test_an_object_is_made_of_its_fields_and_does_not_change() -> None:
    made = Outer(name="x")
    with pytest.raises(TypeError, match="no field nam"):
        made.replace(nam=1)
    with pytest.raises(TypeError, match="no field nam"):
        Outer(name="x", nam=1)  # type: ignore[call-arg]
    further: dict[str, Any] = {"more": 2}
    assert Inner(**further).as_json() == further
    with pytest.raises(TypeError, match="needs name"):
        Outer()  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="frozen"):
        made.name = "y"  # type: ignore[misc]
    assert repr(made) == "Outer(name='x')"
