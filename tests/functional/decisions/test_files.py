"""Files of decisions: complete, replaced as a whole, and refused by name where they are not valid."""

import json
import re

import pytest
import torch

from mmseg_nondecomp.functional.decisions import (
    ClassOffsets,
    DenseCRF,
    ImageOverlap,
    Temperature,
    Thresholds,
    read_decision,
    write_decision,
)
from mmseg_nondecomp.functional.decisions import files as module


def fitted(kind, n_classes=3):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, max(2, n_classes), (6, 40), generator=g)
    classes = torch.ones(1, 1, 1) if n_classes == 1 else torch.arange(n_classes).view(1, -1, 1)
    logits = torch.randn(6, n_classes, 40, generator=g) + (labels.unsqueeze(1) == classes)
    settings = dict(recall=0.8, unit='item') if kind is Thresholds else {}
    return kind.fit([(logits, labels)], **settings), logits


@pytest.mark.parametrize('n_classes', [1, 3])
@pytest.mark.parametrize('kind', [ClassOffsets, ImageOverlap, Thresholds])
def test_a_decision_is_read_as_it_was_written(kind, n_classes, tmp_path):
    decision, logits = fitted(kind, n_classes)
    path = tmp_path / 'new' / 'folder' / 'decision.json'
    write_decision(decision, path)
    for place in (path, str(path)):
        found = read_decision(place)
        assert type(found) is kind
        assert found.state() == decision.state()
        assert found.report == decision.report
        assert torch.equal(found(logits), decision(logits))


def test_settings_without_a_fit_are_written(tmp_path):
    for decision in (ClassOffsets([0.5, -0.5]), ImageOverlap('dice', 1.5), Thresholds([0.3, None])):
        write_decision(decision, tmp_path / 'decision.json')
        assert read_decision(tmp_path / 'decision.json').state() == decision.state()


def test_other_decisions_are_refused(tmp_path):
    for decision in (DenseCRF(), Temperature(1.0), None, {'type': 'ClassOffsets'}):
        with pytest.raises(TypeError, match=f'`decision` should be one of .*Found {type(decision).__name__}'):
            write_decision(decision, tmp_path / 'decision.json')
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / 'decision.json'
    write_decision(ClassOffsets([0.0, 1.0]), path)
    before = path.read_bytes()

    def stop(self, target):
        assert path.read_bytes() == before
        raise OSError('no space left')

    with monkeypatch.context() as patch:
        patch.setattr(module.Path, 'replace', stop)
        with pytest.raises(OSError, match='no space left'):
            write_decision(ImageOverlap(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    write_decision(ImageOverlap(), path)
    assert isinstance(read_decision(path), ImageOverlap)
    assert list(tmp_path.iterdir()) == [path]


def offsets(**changes):
    return {'type': 'ClassOffsets', 'state': {'values': [0.0, 1.0], 'report': None}} | changes


NO_DECISIONS = {
    'empty': b'',
    'no JSON': b'model = dict()',
    'no UTF-8': b'\xff\xfe\x00\x80',
    'a checkpoint': b'PK\x03\x04\x80\x81',
    'deeply nested': b'[' * 200_000,
    'deeply nested state': b'{"type": "ClassOffsets", "state": ' + b'{"a":' * 200_000,
    'a number': b'7',
    'null': b'null',
    'a list': b'[]',
    'a string': b'"ClassOffsets"',
    'no type': b'{"state": {}}',
    'no state': b'{"type": "ClassOffsets"}',
    **{
        name: json.dumps(content).encode()
        for name, content in {
            'another type': offsets(type='DenseCRF'),
            'a type that is a list': offsets(type=['ClassOffsets']),
            'a type that is none': offsets(type=None),
            'the state of another': offsets(type='ImageOverlap'),
            'the state of no thresholds': offsets(type='Thresholds'),
            'a state that is none': offsets(state=None),
            'a state that is a list': offsets(state=[]),
            'values of a wrong type': offsets(state={'values': 'ab'}),
            'values beyond floats': offsets(state={'values': [10**400]}),
            'values that are not finite': offsets(state={'values': [float('nan')]}),
            'no values': offsets(state={'values': []}),
            'further entries': offsets(state={'values': [0.0], 'code': 'print()'}),
            'a wrong report': offsets(state={'values': [0.0], 'report': {'before': 1}}),
            'a temperature beyond floats': {'type': 'ImageOverlap', 'state': {'temperature': 10**400}},
        }.items()
    },
}


@pytest.mark.parametrize('name', NO_DECISIONS)
def test_a_file_without_a_decision_is_refused_by_name(name, tmp_path):
    path = tmp_path / 'decision.json'
    path.write_bytes(NO_DECISIONS[name])
    with pytest.raises(ValueError, match=re.escape(f'The file {str(path)!r} should hold a decision')):
        read_decision(path)


@pytest.mark.parametrize('kind', [ClassOffsets, ImageOverlap, Thresholds])
def test_a_truncated_file_is_refused_wherever_it_ends(kind, tmp_path):
    path = tmp_path / 'decision.json'
    write_decision(fitted(kind)[0], path)
    content = path.read_bytes()
    for length in range(0, len(content) - 2, 7):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match='should hold a decision'):
            read_decision(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match='decision'):
        read_decision(tmp_path / 'decision.json')
