"""The checkpoint by which MMEngine resumes is whole."""

import os

import pytest
import torch
from resuming import is_whole, name_a_whole_checkpoint


@pytest.fixture
def folder(tmp_path):
    """As a training leaves it that was killed after its third checkpoint."""
    for iteration in (1, 2, 3):
        file = tmp_path / f'iter_{iteration}.pth'
        torch.save({'weights': torch.arange(10.0)}, file)
        os.utime(file, (iteration, iteration))
    (tmp_path / 'last_checkpoint').write_text(f'{tmp_path}/iter_3.pth')
    return tmp_path


def named(folder):
    return os.path.basename((folder / 'last_checkpoint').read_text())


def tear(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_whole_one_stays(folder, capsys):
    (folder / 'last_checkpoint').write_text(f'{folder}/iter_2.pth')  # killed before the name of the third was written
    name_a_whole_checkpoint(folder)
    assert named(folder) == 'iter_2.pth'
    assert capsys.readouterr().err == ''


def test_where_nothing_was_saved_nothing_is_done(tmp_path):
    name_a_whole_checkpoint(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('text', ['s3://bucket/iter_3.pth', '{}/deepspeed'])
def test_other_backends_are_left_alone(folder, text):
    (folder / 'deepspeed').mkdir()
    (folder / 'last_checkpoint').write_text(text.format(folder))
    name_a_whole_checkpoint(folder)
    assert (folder / 'last_checkpoint').read_text() == text.format(folder)


@pytest.mark.parametrize('damage', ['half', 'gone', 'no name', 'moved folder'])
def test_the_latest_whole_one_takes_the_place_of_a_damaged_one(folder, capsys, damage):
    if damage == 'half':
        tear(folder / 'iter_3.pth')
    elif damage == 'gone':
        (folder / 'iter_3.pth').unlink()
    else:
        (folder / 'last_checkpoint').write_text('' if damage == 'no name' else '/no/such/folder/iter_3.pth')
    for other in ('best_mIoU_iter_9.pth', 'iter_3-0123abcd.pth'):  # weights without the state of the training
        torch.save({}, folder / other)
    name_a_whole_checkpoint(folder)
    assert named(folder) == ('iter_2.pth' if damage in ('half', 'gone') else 'iter_3.pth')
    assert str(folder / named(folder)) in capsys.readouterr().err
    assert torch.load((folder / 'last_checkpoint').read_text())
    name_a_whole_checkpoint(folder)
    assert capsys.readouterr().err == ''


def test_the_latest_is_the_one_written_last(folder):
    """A longer training in the same folder may have left higher numbers."""
    torch.save({}, folder / 'iter_80000.pth')
    os.utime(folder / 'iter_80000.pth', (0, 0))
    tear(folder / 'iter_3.pth')
    name_a_whole_checkpoint(folder)
    assert named(folder) == 'iter_2.pth'


def test_an_error_without_a_whole_checkpoint_names_the_remedy(folder):
    for file in folder.glob('*.pth'):
        tear(file)
    with pytest.raises(FileNotFoundError, match=r'iter_3\.pth.*without resuming.*max_keep_ckpts'):
        name_a_whole_checkpoint(folder)


def test_no_beginning_of_a_checkpoint_is_whole(folder):
    whole = (folder / 'iter_1.pth').read_bytes()
    torn = folder / 'torn.pth'
    for size in range(0, len(whole), 7):
        torn.write_bytes(whole[:size])
        assert not is_whole(torn), size
    assert is_whole(folder / 'iter_1.pth')
