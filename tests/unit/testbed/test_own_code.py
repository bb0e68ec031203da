"""C files of the user's for a kernel: what they are, and that a source tree is as before afterwards."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from testbed.errors import BadRequest, TestbedError
from testbed.virtual_kernel import own_code

CONTROL = 'static struct tcp_congestion_ops own = {\n\t.name = "own",\n};\n'
QDISC = 'static struct Qdisc_ops own_ops = {\n\t.id = "queue",\n};\n'


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def source(folder: Path) -> Path:
    for part in ("net/ipv4", "net/sched"):
        (folder / part).mkdir(parents=True)
        (folder / part / "Makefile").write_text("obj-y := a.o\n")
    written(folder / "net/ipv4", "tcp_vegas.c", "")
    return folder


def test_a_file_says_what_it_is_by_its_name_and_its_structure(tmp_path: Path) -> None:
    control = own_code.read(written(tmp_path, "tcp_mine.c", CONTROL))
    qdisc = own_code.read(written(tmp_path, "sch_mine.c", QDISC))
    assert (control.kind, control.name, control.folder) == ("congestion", "own", "net/ipv4")
    assert (qdisc.kind, qdisc.name, qdisc.folder) == ("qdisc", "queue", "net/sched")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("mine.c", CONTROL, "a congestion control is a file tcp_NAME.c"),
        ("tcp_Mine.c", CONTROL, "a congestion control is a file tcp_NAME.c"),
        ("tcp_mine.c", QDISC, 'has no .name = "..."'),
        ("sch_mine.c", CONTROL, 'has no .id = "..."'),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(BadRequest) as error:
        own_code.read(written(tmp_path, name, text))
    assert words in str(error.value)


def test_a_tree_has_the_files_only_during_the_build(tmp_path: Path) -> None:
    tree = source(tmp_path / "tree")
    makefiles = [tree / "net/ipv4/Makefile", tree / "net/sched/Makefile"]
    before = [(path.read_text(), path.stat().st_mtime_ns) for path in makefiles]
    files = [
        own_code.read(written(tmp_path, "tcp_mine.c", CONTROL)),
        own_code.read(written(tmp_path, "sch_mine.c", QDISC)),
    ]
    with contextlib.suppress(TestbedError), own_code.placed(tree, files):
        assert (tree / "net/ipv4/tcp_mine.c").read_text() == CONTROL
        assert "obj-y += sch_mine.o" in makefiles[1].read_text()
        assert "sch_mine" not in makefiles[0].read_text()
        raise TestbedError("it does not compile")
    assert not (tree / "net/ipv4/tcp_mine.c").exists()
    assert [(path.read_text(), path.stat().st_mtime_ns) for path in makefiles] == before


def test_what_a_killed_build_left_is_removed_and_its_name_is_free_again(tmp_path: Path) -> None:
    tree = source(tmp_path / "tree")
    control = own_code.read(written(tmp_path, "tcp_mine.c", CONTROL))
    qdisc = own_code.read(written(tmp_path, "sch_mine.c", QDISC))
    killed = own_code.placed(tree, [control])
    killed.__enter__()
    with own_code.placed(tree, [qdisc]):
        assert not (tree / "net/ipv4/tcp_mine.c").exists()
        assert (tree / "net/ipv4/Makefile").read_text() == "obj-y := a.o\n"
    with own_code.placed(tree, [control]):
        assert (tree / "net/ipv4/tcp_mine.c").read_text() == CONTROL
    assert (tree / "net/ipv4/Makefile").read_text() == "obj-y := a.o\n"
    del killed


def test_a_name_that_linux_has_is_refused_and_its_file_stays(tmp_path: Path) -> None:
    tree = source(tmp_path / "tree")
    file = own_code.read(written(tmp_path, "tcp_vegas.c", CONTROL))
    with pytest.raises(BadRequest, match="Linux has a file net/ipv4/tcp_vegas"), own_code.placed(tree, [file]):
        pass
    assert (tree / "net/ipv4/tcp_vegas.c").read_text() == ""


def test_what_the_compiler_says_names_the_users_file(tmp_path: Path) -> None:
    said = "  CC      net/ipv4/tcp.o\n/t/source/net/sched/sch_mine.c:3:1: error: no\n    3 | x\nmake[2]: *** Error 1\n"
    text = own_code.errors(said, [Path("mine/sch_mine.c")])
    assert text == "mine/sch_mine.c does not compile into Linux:\nmine/sch_mine.c:3:1: error: no\n    3 | x"
