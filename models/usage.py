"""What a model card says of a transformer: how `sentence_transformers` and `transformers` load it."""

from textwrap import indent

from tokenizers import Tokenizer

from models.export import RIDING, Wanted, wanted
from models.recipe import Recipe
from models.transformer import MASKED
from models.views import Frame
from models.wording import first_frame

REAL = 'real = inputs["attention_mask"][:, :, None]'
TWO = "*_, before, last = model(**inputs, output_hidden_states=True).hidden_states"
STATES = {
    "first": ["states = model(**inputs).last_hidden_state"],
    "mean": ["states = model(**inputs).last_hidden_state"],
    "mask": ["states = model(**inputs).last_hidden_state"],
    "mean-last-two": [TWO, "states = (before + last) / 2"],
}
MEAN = [REAL, "vectors = (states * real).sum(dim=1) / real.sum(dim=1)"]
RIDES = [
    "sys.path.insert(0, folder)  # Python code that lies in the folder is run",
    f"from {RIDING} import Readout",
    'readout = Readout.load(folder, "{place}_Readout")',
    'vectors = readout({{"token_embeddings": states, **inputs}})["sentence_embedding"]',
]
LINEAR = 'vectors @ head["linear.weight"].T + head["linear.bias"]'
DENSE = {"linear": f"vectors = {LINEAR}", "mlp": f"vectors = torch.tanh({LINEAR})"}

SENTENCES = """
With sentence-transformers{remark}:

```python
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("this folder"{trusted}).encode(["a text", "another"])
```
"""
TRANSFORMERS = """
With transformers; the tokenizer puts around a text what belongs there{several}:

```python
import sys
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer
folder, texts = "{folder}", ["a text", "another"]
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
with torch.no_grad():
{code}
```
"""


def usage(recipe: Recipe, tokenizer: str) -> str:
    """
    Markdown for the card of a resolved recipe; empty where the encoder is no transformer.

    Args:
        tokenizer: its JSON.
    """
    if recipe.encoder.kind != "transformer":
        return ""
    towers = recipe.readout.towers
    apart = len(recipe.encoder.towers) > 1
    wants = wanted(recipe, towers[0])
    rides = apart or wants.rides
    remark = f"; it has no module for this vector, so `{RIDING}.py` rides along, which it runs only if told to trust it"
    trusted = ", trust_remote_code=True" if rides else ""
    words = SENTENCES.format(remark=remark if rides else "", trusted=trusted)
    code = indent("\n".join(lines(recipe, wants, first_frame(recipe, Tokenizer.from_str(tokenizer)))), "    ")
    several = f"; each tower ({', '.join(towers)}) is a folder, and a vector is theirs, one behind the other"
    folder = f"this folder/{towers[0]}" if apart else "this folder"
    written = TRANSFORMERS.format(several=several if apart else "", folder=folder, code=code)
    for unused, sign in (("import sys\n", "sys."), ("from safetensors.torch import load_file\n", "load_file(")):
        written = written if sign in code else written.replace(unused, "")
    return words + written


def lines(recipe: Recipe, wants: Wanted, between: Frame) -> list[str]:
    """Python that makes `vectors` of `inputs` with `model`, both of the transformers library."""
    code = list(STATES[wants.pooling])
    place = len(code)  # a mean over two layers is a module of its own
    if wants.takes_off or wants.head in MASKED:
        code += [line.format(place=place) for line in RIDES]
    elif wants.pooling == "mask":
        behind = len(between) - between.mask
        at = between.mask if between.mask < len(between.before) else f'inputs["attention_mask"].sum(dim=1) - {behind}'
        code += [f"vectors = states[torch.arange(len(texts)), {at}]"]
    else:
        code += ["vectors = states[:, 0]"] if wants.pooling == "first" else MEAN
    if wants.head in DENSE:
        code += [f'head = load_file(f"{{folder}}/{place + 1}_Dense/model.safetensors")', DENSE[wants.head]]
    return code + (["vectors = torch.nn.functional.normalize(vectors)"] if recipe.readout.normalise else [])
