"""
What MLflow runs to serve a registered model: texts in, vectors out.

MLflow copies this file beside the model folder and the package `models`, and executes it where the model is loaded;
`firth` itself need not be installed there.
"""

from typing import Any

import numpy as np
import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Served(PythonModel):
    """A model folder behind MLflow's interface."""

    def load_context(self, context: Any) -> None:
        """Read the folder once, where the model is loaded."""
        from models.folder import load  # the copy beside this file

        self.model = load(context.artifacts["model"])

    # The annotation keeps MLflow from guessing a signature; lists and series reach it as they are or as a frame.
    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> np.ndarray:
        """
        Vectors of texts, [N, D] float32; or, where the model has none, log p of each, [N] float64.

        Args:
            model_input: list of strings, series, or a table with one column.
        Raises:
            ValueError: a table of several columns, or something that is no text.
        """
        if isinstance(model_input, pd.DataFrame):
            if model_input.shape[1] != 1:
                raise ValueError(f"a table of {model_input.shape[1]} columns; should be one column of texts")
            model_input = model_input.iloc[:, 0]
        texts = list(model_input)
        wrong = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
        if wrong is not None:
            raise ValueError(f"row {wrong} is {texts[wrong]!r}; every row should be a text")
        if not self.model.width:
            return np.asarray(self.model.token_scores(texts).of_texts(len(texts)))
        return np.asarray(self.model.encode(texts), dtype=np.float32)


set_model(Served())
