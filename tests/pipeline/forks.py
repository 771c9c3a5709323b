"""Run scripts of tools/ in forks of one process that has imported MMSegmentation, which saves the seconds of an import.

Each line of standard input is a JSON object with the words of a command, a working directory, the environment and a
file for the output. The answer on standard output is a line with ``exit`` and the exit code.
"""

import gc
import json
import os
import runpy
import signal
import sys
import traceback

import cv2
import matplotlib.pyplot  # noqa: F401
import torch
import torch._dynamo
import torchmetrics.classification  # noqa: F401
from mmengine.config import Config
from mmengine.runner import runner
from mmseg.utils import register_all_modules

import mmseg_nondecomp.datasets  # noqa: F401

SECONDS = 300
"""Time limit of a script."""


def run(words, cwd, environment, output):
    """Run a script with its arguments in this process, and leave it."""
    code = 1
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        signal.alarm(SECONDS)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = words
        sys.path.insert(0, os.path.dirname(words[0]))
        runpy.run_path(words[0], run_name='__main__')
        gc.collect()  # a Runner and its hooks refer to each other
        code = 0
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
        if isinstance(stopped.code, str):
            print(stopped.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main():
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    register_all_modules(init_default_scope=False)
    # MMEngine formats the config and asks for compilers several times, which takes longer than a short training.
    Config.pretty_text = ''
    runner.collect_env = dict
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run(**json.loads(line))
        print('exit', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == '__main__':
    main()
