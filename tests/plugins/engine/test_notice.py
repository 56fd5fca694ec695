"""Tests that a notice appears once on a machine."""

from delf_engine.notice import Notice


def test_isolation_notice_appears_once_per_machine(tmp_path):
    first = Notice("isolated by little", tmp_path)
    assert first.take() == ("isolated by little",)
    assert first.take() == ()
    later = Notice("isolated by little", tmp_path)
    assert not later.is_new
    assert later.take() == ()
    assert Notice("isolated by less", tmp_path).take() == ("isolated by less",)
    assert Notice(None, tmp_path).take() == ()


def test_unrememberable_notice_appears_once_per_agent(tmp_path):
    (tmp_path / "notices").write_text("no folder")
    for _ in range(2):
        notice = Notice("isolated by little", tmp_path)
        assert notice.take() == ("isolated by little",)
        assert notice.take() == ()
