"""Writes a tiny Llama with random weights for a real vLLM to serve on a CPU.

usage: model.py OUT_DIR HIDDEN LAYERS

vLLM fills the weights itself (--load-format dummy), so the directory holds only a config and a
byte-level BPE tokenizer trained on this project's own text. What it says is noise; the server, its scheduler,
caches, metrics, errors and streams are the real ones.
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

here = pathlib.Path(__file__).resolve()
out, hidden, layers = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
out.mkdir(parents=True, exist_ok=True)

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
# Enough text to fill the vocabulary: of random tokens, few are then halves of characters, which
# vLLM sends as frames without text. `vllm bench serve` counts those frames, Weir does not.
root = here.parents[2]
texts = [path.read_text() for name in ("docs/*.md", "src/**/*.rs") for path in sorted(root.glob(name))]
tokenizer.train_from_iterator(
    texts,
    trainers.BpeTrainer(
        vocab_size=4096,
        show_progress=False,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ),
)
tokenizer.save(str(out / "tokenizer.json"))

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FILES = {
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": TEMPLATE,
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 8192,
    },
    "config.json": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": hidden // 8,
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    },
    "generation_config.json": {"bos_token_id": 0, "eos_token_id": 2},
}
for name, value in FILES.items():
    (out / name).write_text(json.dumps(value, indent=1))
