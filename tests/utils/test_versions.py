import torch

from mmseg_nondecomp._utils.versions import is_compiling


def test_is_true_while_a_graph_is_traced():
    @torch.compile(fullgraph=True, backend='eager')
    def more_in_a_graph(x):
        return x + 1 if is_compiling() else x

    assert more_in_a_graph(torch.tensor(1.0)) == 2
    assert not is_compiling()
