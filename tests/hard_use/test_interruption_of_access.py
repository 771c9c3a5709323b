"""A cache that cannot be written, has no place, is old, or is wanted by many at once."""

import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest
from hard_use.hindrances import permissions_bind, scenes, start

from mmseg_nondecomp.class_index import _build, _cache, index_classes
from mmseg_nondecomp.datasets import LongTailShapes

N_PROCESSES = 8
ANSWER = 'choose a `cache_dir`|Choose a `cache_dir`'


@pytest.fixture
def place():
    """A folder that every user may enter, which those of pytest are not."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def dataset(place):
    return scenes(place / 'scenes')


def the_file(folder):
    [file] = folder.glob('class-index-v*.npz')
    return file


class TestReadOnly:
    def test_existing_files_are_read(self, dataset, place, capfd):
        right = index_classes(dataset, place / 'cache')
        for folder in (place / 'cache', dataset.folder.parent):
            folder.chmod(0o555)
        capfd.readouterr()
        with permissions_bind():
            assert (index_classes(dataset, place / 'cache').counts == right.counts).all()
            assert len(scenes(dataset.folder.parent)) == 4
        assert capfd.readouterr().err == ''

    def test_missing_files_raise_an_error_that_names_the_argument(self, dataset, place):
        (place / 'cache').mkdir(mode=0o555)
        with permissions_bind():
            with pytest.raises(OSError, match=f'Permission denied.*({ANSWER})'):
                index_classes(dataset, place / 'cache')
            with pytest.raises(OSError, match=r'`data_root`=.*Permission denied.*Choose a `data_root`'):
                scenes(place / 'cache')
        assert not list((place / 'cache').iterdir())

    def test_an_index_of_another_user_that_may_not_be_read_is_replaced(self, dataset, place, capfd):
        right = index_classes(dataset, place / 'cache')
        the_file(place / 'cache').chmod(0)
        for path in [place / 'cache', *(place / 'cache').glob('*.lock')]:
            path.chmod(0o777)
        with permissions_bind():
            assert (index_classes(dataset, place / 'cache').counts == right.counts).all()
            assert the_file(place / 'cache').read_bytes()
        assert 'Could not read the class index' in capfd.readouterr().err


class TestNoPlace:
    @pytest.mark.parametrize('path', ['{}/file', '{}/file/folder', '/proc/no-such-folder', '/dev/null'])
    def test_a_folder_that_cannot_be(self, dataset, place, path):
        (place / 'file').write_text('mine')
        with pytest.raises(OSError, match=ANSWER):
            index_classes(dataset, path.format(place))
        with pytest.raises(OSError, match='Choose a `data_root`'):
            scenes(path.format(place))
        assert (place / 'file').read_text() == 'mine'

    @pytest.mark.parametrize('folder', [None, '~/cache', '~no-such-user/cache'])
    def test_no_home(self, dataset, place, monkeypatch, folder):
        """As in a container whose user has a number and no name."""

        def nobody(_):
            raise KeyError

        monkeypatch.delenv('HOME', raising=False)
        monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
        for name in ('getpwuid', 'getpwnam'):
            monkeypatch.setattr(pwd, name, nobody)
        with pytest.raises(OSError, match=rf'{folder or "~/.cache"}.*HOME or XDG_CACHE_HOME.*{ANSWER}'):
            index_classes(dataset, folder)
        monkeypatch.setenv('XDG_CACHE_HOME', str(place))
        index_classes(dataset)
        assert the_file(place / 'mmseg_nondecomp')


class TestOld:
    def test_an_older_version_is_not_read(self, dataset, place, monkeypatch):
        index_classes(dataset, place / 'cache')
        before = the_file(place / 'cache')
        monkeypatch.setattr(_cache, 'VERSION', _cache.VERSION + 1)
        before.write_bytes(b'of another version')
        index_classes(dataset, place / 'cache')
        assert before.read_bytes() == b'of another version'
        assert len(list((place / 'cache').glob('*.npz'))) == 2

    def test_other_annotations_and_other_classes_are_counted(self, dataset, place, capfd):
        right = index_classes(dataset, place / 'cache')
        label = Path(dataset.get_data_info(0)['seg_map_path'])
        shutil.copy(dataset.get_data_info(1)['seg_map_path'], label)
        changed = index_classes(dataset, place / 'cache')
        assert 'have changed' in capfd.readouterr().err
        assert len(changed.counts) != len(right.counts) or (changed.counts != right.counts).any()
        rest = scenes(dataset.folder.parent, metainfo=dict(classes=('rest', 'disk'), palette=[[0] * 3, [9] * 3]))
        assert index_classes(rest, place / 'cache').n_classes == 2
        assert index_classes(dataset, place / 'cache').n_classes == 16


class TestManyAtOnce:
    def all_at_once(self, action):
        """Do something in eight processes, and give how they ended."""
        ready, go = os.pipe()

        def wait_and_act():
            os.close(go)
            os.read(ready, 1)  # until the other end is closed, for all of them
            action()

        processes = [start(wait_and_act) for _ in range(N_PROCESSES)]
        os.close(go)
        os.close(ready)
        return [os.waitpid(pid, 0)[1] for pid in processes]

    @pytest.fixture
    def builders(self, place, monkeypatch):
        """A file to which each process adds a line when it builds."""

        def noted(function):
            def note(*arguments):
                with open(place / 'builders', 'a') as file:
                    file.write(f'{os.getpid()}\n')
                return function(*arguments)

            return note

        monkeypatch.setattr(_build, '_build', noted(_build._build))
        monkeypatch.setattr(LongTailShapes, '_build', noted(LongTailShapes._build))
        return place / 'builders'

    def test_one_builds_and_all_have_the_same_index_and_the_same_scenes(self, dataset, place, builders):
        def act():
            index_classes(dataset, place / 'cache').save(place / f'{os.getpid()}.npz')

        assert self.all_at_once(act) == [0] * N_PROCESSES
        assert builders.read_text().count('\n') == 1
        whole = {path.read_bytes() for path in [*place.glob('*.npz'), the_file(place / 'cache')]}
        assert len(whole) == 1
        assert len(list(place.glob('*.npz'))) == N_PROCESSES

        def act():
            assert len(list(scenes(place / 'new'))) == 4

        assert self.all_at_once(act) == [0] * N_PROCESSES
        assert builders.read_text().count('\n') == 2
        assert [path.name[:6] for path in sorted((place / 'new').iterdir())] == ['.train', 'train-']

    def test_another_process_builds_where_the_builder_dies(self, dataset, place, builders, monkeypatch):
        """Seven wait for one that is killed; the second builds."""

        def build_once(*arguments):
            if builders.read_text().count('\n') == 1:
                os.kill(os.getpid(), 9)
            return whole(*arguments)

        from mmseg_nondecomp.class_index import _annotations

        whole = _annotations.classes_of_label_map
        monkeypatch.setattr(_annotations, 'classes_of_label_map', build_once)
        ends = self.all_at_once(lambda: index_classes(dataset, place / 'cache'))
        assert sorted(ends) == [0] * (N_PROCESSES - 1) + [9]
        assert builders.read_text().count('\n') == 2
