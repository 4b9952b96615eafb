import pytest
import torch
from tiny import words
from torch import nn
from transformers import DistilBertConfig, DistilBertModel

from models.dropout import LEVELS, Dropout, attention, dropped
from models.pretrained import opened


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_about_the_share_is_dropped_and_the_rest_scaled(share):
    torch.manual_seed(0)
    out = dropped(torch.ones(200_001), share)
    lost = (out == 0).float().mean().item()
    assert lost == pytest.approx(share, abs=5 * (share * (1 - share) / 200_001) ** 0.5)
    assert out.unique().tolist() == pytest.approx([0, 1 / (1 - share)], rel=1e-4)


def test_no_number_depends_on_another_of_the_same_draw():
    torch.manual_seed(0)
    lost = (dropped(torch.ones(50_000, 4), 0.5) == 0).double()
    together = torch.corrcoef(lost.T) - torch.eye(4)
    assert together.abs().max() < 5 / 50_000**0.5


def test_every_place_of_a_draw_is_dropped_alike():
    torch.manual_seed(0)
    lost = (dropped(torch.ones(50_000, 4), 0.1) == 0).double().mean(dim=0)
    assert lost.tolist() == pytest.approx([0.1] * 4, abs=5 * (0.09 / 50_000) ** 0.5)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3, 5)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_shape_and_width_of_numbers_stay(shape, kind):
    out = dropped(torch.ones(shape, dtype=kind), 0.3)
    assert out.shape == shape and out.dtype == kind


def test_the_same_random_state_drops_the_same():
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append(dropped(torch.ones(100), 0.5))
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], dropped(torch.ones(100), 0.5))


def test_the_gradient_goes_where_numbers_went():
    torch.manual_seed(0)
    given = torch.randn(50, requires_grad=True)
    out = dropped(given, 0.5)
    out.sum().backward()
    assert torch.equal(given.grad, (out != 0).float() * LEVELS / (LEVELS - LEVELS // 2))


def test_nothing_is_dropped_after_training_or_at_share_0():
    given = torch.randn(50)
    assert torch.equal(Dropout(0.5).eval()(given), given)
    assert torch.equal(Dropout(0.0)(given), given)


def heads():
    torch.manual_seed(0)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)[:, None, None, :]
    return [torch.randn(2, 3, 4, 5, dtype=torch.float64) for _ in range(3)], mask


def test_attention_with_next_to_no_dropout_is_torchs_own(monkeypatch):
    (query, key, value), mask = heads()
    plain = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
    for masks in (mask, mask.expand(2, 1, 4, 4)):
        assert torch.allclose(attention(nn.Module(), query, key, value, masks)[0], plain, atol=1e-12)
        monkeypatch.setattr("models.dropout.dropped", lambda number, share: number)
        assert torch.allclose(attention(nn.Module(), query, key, value, masks, dropout=0.1)[0], plain, atol=1e-12)
        monkeypatch.undo()


def test_attentions_dropout_keeps_the_mean():
    (query, key, value), mask = heads()
    whole = attention(nn.Module(), query, key, value, mask)[0]
    runs = torch.stack([attention(nn.Module(), query, key, value, mask, dropout=0.2)[0] for _ in range(4000)])
    error = runs.std(dim=0) / 4000**0.5
    assert ((runs.mean(dim=0) - whole).abs() <= 5 * error + 1e-9).all()


def test_a_models_dropout_is_set_by_its_own_name(tmp_path):
    sizes = {"vocab_size": 60, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8, "max_position_embeddings": 16}
    DistilBertModel(DistilBertConfig(**sizes)).save_pretrained(tmp_path)
    config = opened(tmp_path, 40, {}, 0.3, False, words()).config
    assert (config.dropout, config.attention_dropout) == (0.3, 0.3)
