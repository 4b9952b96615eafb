"""
Lies beside a model of Firth as `firth_readout.py`, for `sentence_transformers` to load; nothing of Firth is needed.

`Readout` makes a text's vector from the states of its tokens: at the mask word of a template, less the template's own
vector, through the head of a masked-word model. `Towers` puts the vectors of several encoders one behind the other.
Letters: L texts, S tokens, D width, N lengths.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


class Readout(nn.Module):
    """
    Vectors from states, to stand behind a `Transformer` of sentence-transformers.

    Args:
        width: numbers of a state, D.
        pooling: "first", "mean" or "mask": which state is a text's vector.
        before, behind: words that the tokenizer puts before and behind each text.
        mask: place of the mask word among these words, the text left out.
        lengths: N, how many lengths of texts `bare_ND` knows; 0: nothing is taken off.
        activation: of the head, as `transformers` names it; empty: no head.
        epsilon: of the head's layer norm.
    """

    bare_ND: Tensor

    def __init__(
        self,
        width: int,
        pooling: str,
        before: int,
        behind: int,
        mask: int = 0,
        lengths: int = 0,
        activation: str = "",
        epsilon: float = 1e-12,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "width": width,
            "pooling": pooling,
            "before": before,
            "behind": behind,
            "mask": mask,
        }
        self.config |= {"lengths": lengths, "activation": activation, "epsilon": epsilon}
        self.head = _head(width, activation, epsilon) if activation else nn.Identity()
        # The template's own vector for texts of 0, 1, .. tokens, through the head; as it was at the end of training.
        self.register_buffer("bare_ND", torch.zeros(lengths, width))

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Sets `sentence_embedding` [L, D] from `token_embeddings` [L, S, D] and `attention_mask` [L, S]."""
        state_LSD, real_LS = features["token_embeddings"], features["attention_mask"]
        start_L, whole_L = real_LS.argmax(dim=1), real_LS.sum(dim=1)
        vector_LD = self.head(self._pooled(state_LSD, real_LS, start_L, whole_L))
        if len(self.bare_ND):
            length_L = whole_L - self.config["before"] - self.config["behind"]
            vector_LD = vector_LD - self.bare_ND[length_L.clamp(0, len(self.bare_ND) - 1)]
        return {**features, "sentence_embedding": vector_LD}

    def _pooled(self, state_LSD: Tensor, real_LS: Tensor, start_L: Tensor, whole_L: Tensor) -> Tensor:
        if self.config["pooling"] == "mean":
            return (state_LSD * real_LS[:, :, None]).sum(dim=1) / whole_L[:, None]
        place_L = torch.zeros_like(start_L)
        if self.config["pooling"] == "mask":
            before, behind, mask = (self.config[name] for name in ("before", "behind", "mask"))
            place_L = place_L + mask if mask < before else whole_L - before - behind + mask
        return state_LSD[torch.arange(len(state_LSD), device=state_LSD.device), start_L + place_L]

    def get_embedding_dimension(self) -> int:
        """D."""
        return int(self.config["width"])

    get_sentence_embedding_dimension = get_embedding_dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write settings and numbers."""
        Path(output_path).mkdir(parents=True, exist_ok=True)
        (Path(output_path) / "config.json").write_text(json.dumps(self.config, indent=1), encoding="utf-8")
        numbers = {name: value.contiguous() for name, value in self.state_dict().items()}
        save_file(numbers, str(Path(output_path) / "model.safetensors"))

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> "Readout":
        """Read settings and numbers from a folder, or by name from the hub."""
        place = _local(model_name_or_path, subfolder, kwargs)
        module = cls(**json.loads((place / "config.json").read_text(encoding="utf-8")))
        module.load_state_dict(load_file(str(place / "model.safetensors")))
        return module


class Towers(nn.Module):
    """
    Several encoders over the same texts, each from a folder of its own, their vectors one behind the other.

    Args:
        towers: models of sentence-transformers by name.
    """

    def __init__(self, towers: dict[str, Any]) -> None:
        super().__init__()
        self.towers = nn.ModuleDict(towers)
        self.tokenizer = next(iter(towers.values())).tokenizer

    def preprocess(self, inputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Texts as numbers, the same for all towers."""
        first: Any = next(iter(self.towers.values()))
        return dict(first.preprocess(inputs, *args, **kwargs))

    tokenize = preprocess

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Sets `sentence_embedding` [L, the widths' sum]."""
        vectors = [tower(dict(features))["sentence_embedding"] for tower in self.towers.values()]
        return {**features, "sentence_embedding": torch.cat(vectors, dim=1)}

    def get_embedding_dimension(self) -> int:
        """The widths' sum."""
        towers: list[Any] = list(self.towers.values())
        return sum(int(tower.get_embedding_dimension()) for tower in towers)

    get_sentence_embedding_dimension = get_embedding_dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write each encoder into its folder."""
        (Path(output_path) / "firth_towers.json").write_text(json.dumps(list(self.towers)), encoding="utf-8")
        for name, tower in self.towers.items():
            tower.save(str(Path(output_path) / name))  # type: ignore[operator]

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> "Towers":
        """Read the encoders that `firth_towers.json` names, in its order."""
        from sentence_transformers import SentenceTransformer

        place = _local(model_name_or_path, subfolder, kwargs)
        names = json.loads((place / "firth_towers.json").read_text(encoding="utf-8"))
        # Whoever loaded this file has trusted the folder's code.
        opened = {name: SentenceTransformer(str(place / name), trust_remote_code=True, device="cpu") for name in names}
        return cls(opened)


def _head(width: int, activation: str, epsilon: float) -> nn.Module:
    from transformers.activations import ACT2FN

    return nn.Sequential(nn.Linear(width, width), ACT2FN[activation], nn.LayerNorm(width, eps=epsilon))


def _local(path: str, subfolder: str, given: dict[str, Any]) -> Path:
    if Path(path).is_dir():
        return Path(path) / subfolder
    from sentence_transformers.util import load_dir_path

    wanted: dict[str, Any] = {name: given.get(name) for name in ("token", "cache_folder", "revision")}
    return Path(str(load_dir_path(path, subfolder, **wanted)))
