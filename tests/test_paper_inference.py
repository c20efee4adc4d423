"""Section 4.3's network: its equations, its batches, its training, and what a killed training becomes."""

from __future__ import annotations

import dataclasses
import math
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from paper import _train
from paper._gru import GRU, TorchGRU
from paper._inference import SYSTEMS, Network
from paper._pairs import LEARNT, START, UNKNOWN, Pairs, Ragged, words, written
from paper._train import Checkpoint, Run, State, evaluate, optimizer_of, train
from tests import small_snli

ROOT = Path(__file__).resolve().parent.parent
WEIGHTINGS = {
    "logistic": torch.sigmoid,
    "soft": lambda z: torch.softmax(z, 0),
    "sparse": lambda z: torch.from_numpy(project(z.detach().numpy())),
}


def project(z: np.ndarray) -> np.ndarray:
    """Algorithm 1."""
    ordered = np.sort(z)[::-1]
    sums = ordered.cumsum()
    size = np.count_nonzero(1 + np.arange(1, len(z) + 1) * ordered > sums)
    return np.maximum(z - (sums[size - 1] - 1) / size, 0)


def lengths_mask(steps: int, lengths: list[int]) -> torch.Tensor:
    return torch.arange(steps)[:, None] < torch.tensor(lengths)


def small_pairs(count: int = 41, vocabulary: int = 19, seed: int = 0) -> Pairs:
    rng = np.random.default_rng(seed)
    draw = lambda low: [  # noqa: E731
        rng.choice(vocabulary + 1, rng.integers(low, 9)).tolist() for _ in range(count)
    ]
    number = lambda n: UNKNOWN if n == vocabulary else n + LEARNT  # noqa: E731
    premises = [[number(n) for n in row] for row in draw(1)]
    hypotheses = [[START, *(number(n) for n in row)] for row in draw(0)]
    return Pairs(Ragged(premises), Ragged(hypotheses), rng.integers(0, 3, count))


def small_network(system: str, gru: str = "text", **options: float) -> Network:
    torch.manual_seed(0)
    vectors = torch.randn(19, 13, dtype=torch.float64)
    network = Network(vectors, system, 7, gru, options.get("dropout", 0.0)).double()
    for parameter in network.parameters():  # biases too
        nn.init.normal_(parameter, std=options.get("std", 0.7))
    return network.eval()


# ---- the recurrent unit (Eqs. 28-31) ----------------------------------------------------------------------


def states_of_the_text(gru: GRU, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """One sequence, (steps, features), as the equations stand there."""
    W, b, D = gru.input.weight, gru.input.bias, len(h)
    states = []
    for x_t in x:
        z = torch.sigmoid(W[:D] @ x_t + gru.gates[:, :D].T @ h + b[:D])
        r = torch.sigmoid(W[D : 2 * D] @ x_t + gru.gates[:, D:].T @ h + b[D : 2 * D])
        candidate = torch.tanh(W[2 * D :] @ x_t + gru.candidate.T @ (r * h) + b[2 * D :])
        h = (1 - z) * h + z * candidate
        states.append(h)
    return torch.stack(states)


def gru_case(kind: type[nn.Module]) -> tuple[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
    torch.manual_seed(1)
    gru = kind(5).double()
    for parameter in gru.parameters():
        nn.init.normal_(parameter)
    lengths = [7, 1, 4, 7]
    x = torch.randn(7, 4, 5, dtype=torch.float64, requires_grad=True)
    start = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    return gru, x, lengths_mask(7, lengths), start, lengths


def test_the_unit_is_that_of_the_text():
    """Eqs. 28-31, with the reset gate inside of the product, for each sequence of a padded batch."""
    gru, x, mask, start, lengths = gru_case(GRU)
    states = gru(x, mask, start)
    for row, length in enumerate(lengths):
        want = states_of_the_text(gru, x[:length, row], start[row])
        torch.testing.assert_close(states[:length, row], want, rtol=0, atol=1e-14)


def test_the_other_unit_is_pytorchs():
    """A setting: torch.nn.GRU, which is another function of the same gates."""
    gru, x, mask, start, lengths = gru_case(TorchGRU)
    states = gru(x, mask, start)
    for row, length in enumerate(lengths):
        want, _ = gru.gru(x[:length, row], start[row, None])
        torch.testing.assert_close(states[:length, row], want, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", [GRU, TorchGRU])
def test_a_sequence_that_has_ended_keeps_its_state_and_reads_nothing(kind):
    """The last step holds the last state of every sequence, whatever padding holds."""
    gru, x, mask, start, lengths = gru_case(kind)
    states = gru(x, mask, start)
    for row, length in enumerate(lengths):
        assert (states[length:, row] == states[length - 1, row]).all()
    (grad,) = torch.autograd.grad(states[-1].square().sum(), x)
    assert (grad[~mask] == 0).all()
    changed = torch.where(mask.unsqueeze(-1), x, x + 3)
    assert torch.equal(gru(changed, mask, start), states)


@pytest.mark.parametrize("kind", [GRU, TorchGRU])
def test_a_sequence_without_a_step_keeps_the_state_that_it_starts_from(kind):
    gru, x, _, start, _ = gru_case(kind)
    assert torch.equal(gru(x, lengths_mask(7, [3, 0, 2, 1]), start)[-1, 1], start[1])


def test_the_gradient_by_hand_is_right():
    """Of all states, in the inputs, the first state and all parameters, against finite differences."""
    gru, x, mask, start, _ = gru_case(GRU)
    names = [name for name, _ in gru.named_parameters()]

    def states(x: torch.Tensor, start: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(gru, dict(zip(names, parameters, strict=True)), (x, mask, start))

    inputs = (x[:, :2], start[:2], *gru.parameters())
    mask = mask[:, :2]
    torch.autograd.gradcheck(states, tuple(t.detach().requires_grad_() for t in inputs))


# ---- the network (Eqs. 32-36) -----------------------------------------------------------------------------


@pytest.mark.parametrize("gru", ["text", "torch"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_pair_in_a_batch_is_the_equations_of_the_pair(system, gru):
    """Eqs. 32-36 for each pair alone, unpadded; the hypothesis starts from the premise's last state."""
    network, pairs = small_network(system, gru), small_pairs()
    rows = np.arange(len(pairs))
    scores, weights = network(pairs.batch(rows))
    table = torch.cat([network.learnt, network.vectors @ network.projection.weight.T])
    for row in rows:
        ids = [
            numbers.flat[numbers.offsets[row] : numbers.offsets[row + 1]]
            for numbers in (pairs.premises, pairs.hypotheses)
        ]
        premise, hypothesis = (table[torch.from_numpy(i)].unsqueeze(1) for i in ids)
        whole = [torch.ones(len(i), 1, dtype=torch.bool) for i in ids]
        H = network.premise(premise, whole[0], torch.zeros(1, 7, dtype=torch.float64))[:, 0]
        end = network.hypothesis(hypothesis, whole[1], H[-1:])[-1, 0]
        r = H[-1]
        if system != "none":
            a = network.attention
            m = torch.tanh(H @ a.key_proj.weight.T + end @ a.query_proj.weight.T + a.key_proj.bias)
            p = WEIGHTINGS[system](m @ a.score.weight[0])
            r = p @ H
            torch.testing.assert_close(weights[row, : len(p)], p, rtol=0, atol=1e-12)
            assert (weights[row, len(p) :] == 0).all()
        u = torch.tanh(
            network.from_premise.weight @ r + network.from_premise.bias + network.from_hypothesis.weight @ end
        )
        torch.testing.assert_close(scores[row], network.output(u), rtol=0, atol=1e-12)


def test_the_system_without_attention_has_no_weights():
    assert small_network("none")(small_pairs().batch(np.arange(3)))[1] is None


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_parameter_has_a_gradient_and_the_vectors_have_none(system):
    """Only the projection of the words is learnt."""
    network, pairs = small_network(system), small_pairs()
    scores, _ = network(pairs.batch(np.arange(len(pairs))))
    scores.square().sum().backward()
    assert all(parameter.grad.count_nonzero() for parameter in network.parameters())
    assert "vectors" not in {name for name, _ in network.named_parameters()}
    assert not network.vectors.requires_grad
    assert "vectors" not in network.state_dict()


def test_dropout_is_that_of_the_words_and_of_the_output():
    """In training alone."""
    network, pairs = small_network("sparse", dropout=0.5), small_pairs()
    batch = pairs.batch(np.arange(5))
    seen = []
    for module in (network.premise, network.hypothesis, network.output):
        module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    network(batch)
    assert not any((x == 0).any() for x in seen)
    seen.clear()
    network.train()(batch)
    shares = [(x == 0).double().mean().item() for x in seen]
    assert shares == pytest.approx([0.5] * 3, abs=0.2)


def test_weights_start_as_glorots_and_gates_four_times_as_large():
    torch.manual_seed(0)
    network = Network(torch.zeros(3, 300), "sparse", 100, "text", 0.1)
    bound = math.sqrt(6 / 200)
    update, reset, candidate = network.premise.input.weight.detach().chunk(3)
    for gate in (update, reset, *network.hypothesis.gates.detach().chunk(2, 1)):
        assert 3.9 * bound < gate.abs().max() <= 4 * bound
    for weight in (candidate, network.premise.candidate, network.from_hypothesis.weight):
        assert 0.97 * bound < weight.detach().abs().max() <= bound
    assert network.projection.weight.abs().max() <= math.sqrt(6 / 400)
    assert all((p == 0).all() for name, p in network.named_parameters() if "bias" in name)


# ---- words and batches ------------------------------------------------------------------------------------


def test_words_are_lower_cased_runs_of_letters_and_digits():
    text = "Two dogs aren't here, 25 boys' T-shirts: _é_."
    assert words(text) == ["two", "dogs", "aren", "t", "here", "25", "boys", "t", "shirts", "é"]
    assert written(text) == ["Two", "dogs", "aren", "t", "here", "25", "boys", "T", "shirts", "é"]


def test_a_word_without_a_vector_is_the_unknown_one_and_a_hypothesis_begins_with_its_own():
    pairs = Pairs.of(["A dog runs."], ["Cat a!"], [2], {"a": 0, "runs": 1})
    assert pairs.premises.flat.tolist() == [LEARNT, UNKNOWN, LEARNT + 1]
    assert pairs.hypotheses.flat.tolist() == [START, UNKNOWN, LEARNT]


def test_a_batch_holds_its_words_once():
    """And its numbers, through them, are those of the pairs."""
    pairs = small_pairs()
    rows = np.array([5, 3, 17, 40])
    batch = pairs.batch(rows)
    assert len(set(batch.words.tolist())) == len(batch.words)
    table = np.concatenate([[UNKNOWN, START], batch.words.numpy() + LEARNT])
    parts = ((pairs.premises, batch.premise, batch.premise_mask), (pairs.hypotheses, *batch[3:5]))
    for numbers, ids, mask in parts:
        for column, row in enumerate(rows):
            own = table[ids[:, column][mask[:, column]].numpy()]
            assert own.tolist() == numbers.flat[numbers.offsets[row] : numbers.offsets[row + 1]].tolist()
    assert batch.labels.tolist() == pairs.labels[rows].tolist()


def test_an_epoch_has_every_pair_once_in_batches_of_similar_lengths():
    pairs = small_pairs(997)
    batches = pairs.shuffled(10, 25, np.random.default_rng(0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(997))
    assert sorted(map(len, batches)) == [7] + [10] * 99
    spread = np.mean([np.ptp(pairs.premises.lengths[rows]) for rows in batches])
    assert spread < 0.2 * np.ptp(pairs.premises.lengths)
    again, other = (pairs.shuffled(10, 25, np.random.default_rng(seed)) for seed in (0, 1))
    assert all(map(np.array_equal, batches, again))
    assert not all(map(np.array_equal, batches, other))
    assert sorted(np.concatenate(list(pairs.in_order(10))).tolist()) == list(range(997))


# ---- training ---------------------------------------------------------------------------------------------


def test_l2_is_coupled_and_spares_the_biases():
    """Adam sees the gradient plus l2 times the weight; a bias' gradient is left as it is."""
    run = Run("sparse", l2=0.25)
    network = small_network("sparse")
    twin = small_network("sparse")
    reference = torch.optim.Adam(twin.parameters(), lr=3e-4, betas=(0.9, 0.999), eps=1e-8)
    optimizer = optimizer_of(network, run)
    batch = small_pairs().batch(np.arange(11))
    for _ in range(3):
        _train.update(network, optimizer, batch)
        scores, _ = twin(batch)
        penalty = sum(p.square().sum() for name, p in twin.named_parameters() if "bias" not in name)
        loss = nn.functional.cross_entropy(scores, batch.labels) + run.l2 / 2 * penalty
        reference.zero_grad()
        loss.backward()
        reference.step()
    for ours, theirs in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def learnable(folder: Path) -> tuple[torch.Tensor, Pairs, Pairs]:
    pytest.importorskip("sklearn")
    from zerotail.datasets import fetch_snli, load_glove

    small_snli.write(folder, train=1000, dev=200)
    parts = {part: fetch_snli(part, data_home=folder) for part in ("train", "dev")}
    vocabulary = {word for part in parts.values() for pair in part.X for text in pair for word in words(text)}
    glove = load_glove(None, sorted(vocabulary), data_home=folder)
    known = {word: row for row, word in enumerate(glove.words)}
    of = {part: Pairs.of(*zip(*found.X, strict=True), found.Y, known) for part, found in parts.items()}
    return torch.from_numpy(glove.vectors), of["train"], of["dev"]


def test_every_system_learns(tmp_path):
    """Far above chance, a third, on colours that agree with the premise's, or not."""
    vectors, training, dev = learnable(tmp_path / "data")
    best = {}
    for system in SYSTEMS:
        run = Run(system, dim=16, dropout=0.0, learning_rate=0.01, epochs=6, patience=6)
        outcome = train(run, vectors, training, dev)
        best[system] = outcome.history[outcome.best_epoch - 1]["dev"]
        assert best[system] == max(epoch["dev"] for epoch in outcome.history)
        assert evaluate(outcome.network, dev).accuracy == best[system]
    assert min(best.values()) > 60, best


def test_the_evaluation_counts_words_of_weight_above_zero():
    """Padding does not count; the confusion's rows are the true labels."""
    network, pairs = small_network("sparse", std=2.0), small_pairs()
    found = evaluate(network, pairs)
    assert [len(row) for row in found.weights] == pairs.premises.lengths.tolist()
    assert all(math.isclose(sum(row), 1, rel_tol=1e-9) for row in found.weights)
    positive = sum(weight > 0 for row in found.weights for weight in row)
    assert found.selected == 100 * positive / pairs.premises.lengths.sum()
    assert 0 < found.selected < 100
    right = np.mean(np.array(found.predicted) == pairs.labels)
    assert found.accuracy == pytest.approx(100 * right)
    assert np.sum(found.confusion, axis=1).tolist() == np.bincount(pairs.labels, minlength=3).tolist()
    assert evaluate(small_network("soft"), pairs).selected == 100
    assert evaluate(small_network("none"), pairs).selected == 0


TINY = Run("sparse", dim=6, batch=4, pool=3, epochs=3, patience=2, dropout=0.3, learning_rate=0.01)


def tiny(checkpoint: Path | None = None, run: Run = TINY, **options: object) -> _train.Outcome:
    torch.manual_seed(5)
    vectors = torch.randn(19, 13)
    return train(run, vectors, small_pairs(41), small_pairs(23, seed=1), checkpoint=checkpoint, **options)


def test_a_training_ends_when_epochs_bring_nothing(monkeypatch):
    """And what it returns is the best epoch, the first of those that are equal."""
    accuracies = iter([50.0, 60.0, 60.0, 55.0, 70.0])
    real = _train.evaluate
    monkeypatch.setattr(
        _train, "evaluate", lambda *args: dataclasses.replace(real(*args), accuracy=next(accuracies))
    )
    outcome = tiny(run=dataclasses.replace(TINY, epochs=9, patience=2))
    assert [epoch["dev"] for epoch in outcome.history] == [50, 60, 60, 55]
    assert outcome.best_epoch == 2


def test_every_epoch_has_an_order_of_its_own(monkeypatch):
    """Of the seed and the number of the epoch."""
    orders = []
    real = Pairs.shuffled

    def shuffled(self: Pairs, *arguments: object) -> list[np.ndarray]:
        orders.append(real(self, *arguments))
        return orders[-1]

    monkeypatch.setattr(Pairs, "shuffled", shuffled)
    for seed in (0, 0, 1):
        tiny(run=dataclasses.replace(TINY, seed=seed, epochs=2))
    told = [str([rows.tolist() for rows in order]) for order in orders]
    assert told[:2] == told[2:4]
    assert len(set(told)) == 4


class Stopped(Exception):
    pass


def test_the_best_epoch_outlives_a_stop(tmp_path, monkeypatch):
    """Also when what is trained after it is worse."""
    real = _train.evaluate

    def first_is_best(network: Network, pairs: Pairs) -> _train.Evaluation:
        found = real(network, pairs)
        epochs.append(1)
        return dataclasses.replace(found, accuracy=50.0 - len(epochs))

    monkeypatch.setattr(_train, "evaluate", first_is_best)
    epochs: list[int] = []
    want = tiny().network.state_dict()
    epochs.clear()

    def stop(state: State, batches: int) -> None:
        if state.epoch == 2:
            raise Stopped

    with pytest.raises(Stopped):
        tiny(tmp_path / "run.pt", progress=stop)
    outcome = tiny(tmp_path / "run.pt")
    assert outcome.best_epoch == 1
    assert all(torch.equal(outcome.network.state_dict()[name], value) for name, value in want.items())


def test_a_training_that_is_stopped_anywhere_goes_on_to_the_same_bits(tmp_path):
    """Within an epoch, before its last batch is told, and in the next one; each twice."""
    want = tiny().network.state_dict()
    for moment in (3, 11, 13):
        path = tmp_path / f"{moment}.pt"
        calls = 0

        def stop(state: State, batches: int, moment: int = moment) -> None:
            nonlocal calls
            calls += 1
            if calls == moment:
                raise Stopped

        for _ in range(2):
            calls = 0
            with pytest.raises(Stopped):
                tiny(path, every=0.0, progress=stop)
        got = tiny(path)
        for name, value in want.items():
            assert torch.equal(got.network.state_dict()[name], value), (moment, name)
        assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


CHILD = """
import sys
from pathlib import Path
from tests.test_paper_inference import tiny
import torch

steps = 0

def progress(state, batches):
    global steps
    steps += 1
    print(steps, flush=True)
    if steps == 9:
        sys.stdin.read()  # without an end for the one that is killed: it cannot be done before


outcome = tiny(Path(sys.argv[1]), every=0.0, progress=progress)
torch.save(outcome.network.state_dict(), sys.argv[2])
"""


def test_a_training_that_is_killed_goes_on_to_the_same_bits(tmp_path):
    """SIGKILL within an epoch, wherever the process is then; another process goes on."""
    want = tiny().network.state_dict()
    command = [sys.executable, "-c", CHILD, str(tmp_path / "run.pt"), str(tmp_path / "final.pt")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        for _ in range(5):
            assert child.stdout.readline()
        child.kill()
    assert child.wait() in {-9, 1}
    assert (tmp_path / "run.pt").exists()
    assert not (tmp_path / "final.pt").exists()
    nothing = subprocess.DEVNULL
    subprocess.run(command, cwd=ROOT, check=True, stdin=nothing, stdout=nothing)
    got = torch.load(tmp_path / "final.pt", weights_only=True)
    assert all(torch.equal(got[name], value) for name, value in want.items())


@pytest.mark.parametrize(
    ("field", "value"), [("seed", 1), ("l2", 1e-4), ("system", "soft"), ("dim", 8), ("data", "other")]
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, field, value):
    """It says which one differs; the checkpoint stays."""
    path = tmp_path / "run.pt"
    tiny(path, run=dataclasses.replace(TINY, epochs=1))
    before = path.read_bytes()
    ours = getattr(TINY, field)
    with pytest.raises(
        ValueError, match=rf"must be a checkpoint of {field}={value!r}; got one of {field}={ours!r}"
    ):
        tiny(path, run=dataclasses.replace(TINY, epochs=1, **{field: value}))
    assert path.read_bytes() == before


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("harm"),))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a file of another format, or a part of one"),
        (pickle.dumps({"run": Harmful(), "state": {}}), "a file of another format, or a part of one"),
        ({"run": Harmful(), "state": {}}, "a damaged one, or no plain values"),
        ([1, 2], "something else"),
    ],
    ids=["empty", "pickle", "code", "list"],
)
def test_a_file_that_is_no_checkpoint_is_refused_and_nothing_in_it_runs(
    tmp_path, monkeypatch, content, message
):
    """Only tensors and plain values are read."""
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        Path("run.pt").write_bytes(content)
    else:
        torch.save(content, "run.pt")
    with pytest.raises(ValueError, match=rf"run\.pt must be a checkpoint.*; got {message}"):
        tiny(tmp_path / "run.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


def test_a_checkpoint_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    tiny(path, run=dataclasses.replace(TINY, epochs=1))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(
        ValueError, match="must be a checkpoint; got a file of another format, or a part of one"
    ):
        tiny(path)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    """No half of it is seen, and no other file remains."""
    path = tmp_path / "run.pt"
    file = Checkpoint(path, TINY)
    file.save(State(epoch=1))

    def fail(value: object, stream: object) -> None:
        stream.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="no space left"):
        file.save(State(epoch=2))
    assert [found.name for found in tmp_path.iterdir()] == ["run.pt"]
    assert file.load()["state"]["epoch"] == 1
