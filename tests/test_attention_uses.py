"""The table "use x function", for attention."""

from __future__ import annotations

import pytest
import torch

from tests.attention_cases import CASES
from tests.test_torch_uses import USES, Problem, close

pytestmark = [
    # The first use of forward mode scripts torch's own decompositions.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    # func.linearize folds constants with torch.fx, which warns of its own way to do so.
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
]


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_is_right_in_every_use(case, name):
    """Values, derivatives and second derivatives, at rtol 1e-12 in float64."""
    USES[name](case)


def test_attention_is_one_compiled_graph_with_its_backward():
    """compile(fullgraph=True) of all cases together: values and gradients."""
    problems = [Problem(case) for case in CASES]

    def every(inputs):
        return [p.call(*xs) for p, xs in zip(problems, inputs, strict=True)]

    torch._dynamo.reset()
    compiled = torch.compile(every, fullgraph=True, backend="aot_eager")
    inputs = [p.inputs(grad=True) for p in problems]
    out = compiled(inputs)
    for p, xs, y in zip(problems, inputs, out, strict=True):
        close(y, p.exact.value)
        close(torch.autograd.grad(y, xs, p.like_output(p.u), retain_graph=True), p.vjp)
    torch._dynamo.reset()
