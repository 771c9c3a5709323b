"""A framework is imported by its own adapter alone."""

import subprocess
import sys

FRAMEWORKS = (
    'accelerate',
    'keras',
    'lightning',
    'monai',
    'nnunetv2',
    'pytorch_lightning',
    'segmentation_models_pytorch',
)
FRAMEWORKS += ('segmentation_models_pytorch', 'ultralytics')


def imported_by(*modules):
    code = f'import sys, {", ".join(modules)}; print(*sys.modules)'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    return {name.partition('.')[0] for name in done.stdout.split()}


def test_the_package_imports_no_framework():
    base = imported_by('torch', 'torchmetrics')
    assert not (imported_by('mmseg_nondecomp', 'mmseg_nondecomp.adapters') - base) & set(FRAMEWORKS)


def test_adapters_without_a_base_class_of_their_framework_import_none():
    adapters = [f'mmseg_nondecomp.adapters.{name}' for name in ('monai', 'smp', 'transformers', 'ultralytics')]
    assert not (imported_by(*adapters) - imported_by('torch', 'torchmetrics')) & set(FRAMEWORKS)
