"""A full disk: what cannot be kept is told, nothing half-written has a name, and with room again it works."""

import sys
from contextlib import nullcontext

import class_stats as class_stats_tool
import pytest
from hard_use.hindrances import N_IMAGES, full_disk, scenes

from mmseg_nondecomp.class_index import index_classes
from mmseg_nondecomp.datasets import long_tail_shapes


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    return scenes(tmp_path_factory.mktemp('scenes'))


def names(folder):
    return sorted(path.suffix or path.name for path in folder.iterdir())


@pytest.mark.parametrize('most', [0, 100, 1000, 2000])
def test_classes_are_counted_and_not_kept(dataset, tmp_path, capsys, most):
    right = index_classes(dataset, tmp_path / 'right')
    [file] = (tmp_path / 'right').glob('*.npz')
    assert file.stat().st_size > most
    capsys.readouterr()
    for _ in range(2):
        with full_disk(most):
            index = index_classes(dataset, tmp_path / 'full')
        assert (index.counts == right.counts).all()
        message = capsys.readouterr().err
        assert 'Could not keep the class index' in message
        assert 'cache_dir' in message
        assert names(tmp_path / 'full') == ['.lock']
    index_classes(dataset, tmp_path / 'full')
    assert names(tmp_path / 'full') == ['.lock', '.npz']
    assert (tmp_path / 'full' / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize('n_written', range(2 * N_IMAGES))
def test_scenes_are_there_as_a_whole_or_not_at_all(dataset, tmp_path, monkeypatch, n_written):
    """There is room for some of the pictures: images and label maps in turn."""
    write, written = long_tail_shapes._write_png, []

    def write_while_there_is_room(path, pixels):
        with full_disk() if len(written) == n_written else nullcontext():
            write(path, pixels)
        written.append(path)

    with monkeypatch.context() as patch:
        patch.setattr(long_tail_shapes, '_write_png', write_while_there_is_room)
        with pytest.raises(OSError, match=r'`data_root`=.*File too large.*Choose a `data_root`'):
            scenes(tmp_path)
    assert names(tmp_path) == ['.lock']
    assert len(scenes(tmp_path)) == N_IMAGES
    for path in dataset.folder.rglob('*.png'):
        assert (tmp_path / path.relative_to(dataset.folder.parent)).read_bytes() == path.read_bytes()


@pytest.fixture
def class_stats(dataset, tmp_path, monkeypatch, pytestconfig):
    """Runs tools/class_stats.py, which leaves a table, numbers and a picture in a folder."""
    monkeypatch.chdir(pytestconfig.rootpath)

    def run(most=None):
        config = 'configs/long_tail_shapes/tiny-unet_ce_lts.py'
        data = f'train_dataloader.dataset.data_root={dataset.folder.parent}'
        sizes = [f'train_dataloader.dataset.{key}' for key in (f'num_images={N_IMAGES}', 'image_size=48')]
        monkeypatch.setattr(sys, 'argv', ['', config, '--out', str(tmp_path / 'out'), '--cfg-options', data, *sizes])
        if most is None:
            class_stats_tool.main()
        else:
            with full_disk(most):
                class_stats_tool.main()
        return {path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()}

    return run


@pytest.mark.parametrize('most', [1500, 6000])
def test_results_of_tools_are_whole(class_stats, tmp_path, capsys, most):
    whole = class_stats()
    assert sorted(whole) == ['class_stats.json', 'class_stats.md', 'class_stats.png']
    assert max(map(len, whole.values())) > most
    with pytest.raises(OSError, match=r'Could not write .*class_stats\..*File too large.*Make room'):
        class_stats(most)
    assert {path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()} == whole, 'the old results are gone'
    for path in (tmp_path / 'out').iterdir():
        path.unlink()
    with pytest.raises(OSError, match='Could not write'):
        class_stats(most)
    left = {path.name: path.read_bytes() for path in (tmp_path / 'out').iterdir()}
    assert left.items() <= whole.items(), 'a file is not whole'
    assert class_stats() == whole
