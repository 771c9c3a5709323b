"""The index of models is as OpenMMLab's tools read it, and its numbers are those of the results."""

import json
import shutil
from pathlib import Path

import fill_metafile as tool
import pytest
import yaml

ROOT = Path(__file__).parents[1]
METAFILES = sorted(ROOT.glob('configs/*/metafile.yml'))
OF_COLLECTIONS = {'Name', 'License', 'Metadata', 'README', 'Frameworks'}
OF_MODELS = {'Name', 'In Collection', 'Config', 'Metadata', 'Results'}


@pytest.fixture
def write(tmp_path):

    def write(**report):
        folder, results = tmp_path / tool.FOLDER, tmp_path / tool.RESULTS
        for path in (folder, results.parent):
            path.mkdir(parents=True, exist_ok=True)
        for way in ('ce', 'lmp-iou', 'lovasz'):
            shutil.copy(ROOT / tool.FOLDER / f'tiny-unet_{way}_lts.py', folder)
        results.write_text(json.dumps(report))
        return tmp_path

    return write


def models(text):
    return {model['Name']: model for model in yaml.safe_load(text)['Models']}


def row(config, *scores, mean):
    return dict(config=config) | {f'seed {i}': f'{score:.2f}' for i, score in enumerate(scores)} | dict(mIoU=mean)


def test_the_index_imports_every_metafile():
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    assert index == {'Import': [str(path.relative_to(ROOT)) for path in METAFILES]}
    assert METAFILES


@pytest.mark.parametrize('path', METAFILES, ids=lambda path: path.parent.name)
def test_metafiles_have_the_form_of_openmmlab_and_name_the_configs_of_their_folder(path):
    document = yaml.safe_load(path.read_text())
    assert set(document) == {'Collections', 'Models'}
    for collection in document['Collections']:
        assert set(collection) == OF_COLLECTIONS
        assert (ROOT / collection['README']).is_file()
    names = [model['Name'] for model in document['Models']]
    assert len(set(names)) == len(names)
    assert {model['In Collection'] for model in document['Models']} == {c['Name'] for c in document['Collections']}
    for model in document['Models']:
        assert {'Name', 'In Collection', 'Config'} <= set(model) <= OF_MODELS
        assert Path(model['Config']).stem == model['Name']
        for result in model.get('Results', []):
            assert set(result) == {'Task', 'Dataset', 'Metrics'}
            assert all(isinstance(value, float) for value in result['Metrics'].values())
    named = {ROOT / model['Config'] for model in yaml.safe_load(path.read_text())['Models']}
    assert named == set(path.parent.glob('*.py'))


def test_the_numbers_are_those_of_the_results():
    assert (ROOT / tool.METAFILE).read_text() == tool.metafile(ROOT), 'run `python tools/fill_metafile.py`'


@pytest.mark.parametrize('key', ['tables', 'results'])
def test_results_of_the_short_schedule_are_written(write, key):
    short = [
        row('BASE (cross-entropy)', 40.03, 39.65, 45.11, mean='41.6 ± 3.1'),
        row('tiny-unet_lovasz_lts', mean='49.3'),
    ]
    found = models(tool.metafile(write(**{key: dict(long=[row('imf', mean='70.0')], short=short)})))
    assert found['tiny-unet_ce_lts']['Results'] == [tool.TASK | {'Metrics': {'mIoU': 41.6}}]
    assert found['tiny-unet_ce_lts']['Metadata'] == {'Seeds': 3}
    assert found['tiny-unet_lovasz_lts']['Results'][0]['Metrics'] == {'mIoU': 49.3}
    assert found['tiny-unet_lovasz_lts']['Metadata'] == {'Seeds': 1}
    assert set(found['tiny-unet_lmp-iou_lts']) == {'Name', 'In Collection', 'Config'}


def test_results_without_a_config_are_named(write):
    root = write(tables=dict(short=[row('tiny-unet_focal_lts', mean='50.0')]))
    with pytest.raises(ValueError, match='tiny-unet_focal_lts'):
        tool.metafile(root)


def test_the_command_writes_and_checks(write, monkeypatch):
    root = write(tables=dict(short=[row('tiny-unet_ce_lts', mean='41.6 ± 3.1')]))
    monkeypatch.setattr(tool, 'ROOT', root)
    for options, fails in (['--check'], True), ([], False), (['--check'], False):
        monkeypatch.setattr('sys.argv', ['fill_metafile.py', *options])
        if fails:
            with pytest.raises(SystemExit, match='out of date'):
                tool.main()
        else:
            tool.main()
    assert 'mIoU: 41.6' in (root / tool.METAFILE).read_text()
