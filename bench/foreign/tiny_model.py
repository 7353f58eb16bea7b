"""Write a model file of a few hundred kilobytes that llama.cpp can serve: `python tiny_model.py FILE`.

Nothing is trained. Every layer is zero, so a token alone decides the next one: a prompt of a person is followed by
a call, results are followed by the words "Rome it is.". What stands in the call is up to the server's grammar.
"""

import sys

import gguf
import numpy as np

WIDTH, HIDDEN, HEADS, LAYERS, CONTEXT = 256, 64, 4, 1, 8192
SPECIAL = ["<unk>", "<s>", "</s>", "<|turn|>", "<|end|>"]
WHOLE = ["<tool_call>", "</tool_call>", "Rome", " it", " is."]
FOLLOWS = {
    "\n": "<tool_call>",
    "}": "</tool_call>",
    "</tool_call>": "<|end|>",
    "\t": "Rome",
    "Rome": " it",
    " it": " is.",
    " is.": "<|end|>",
}
TEMPLATE = (
    "{% if tools %}<|turn|>system\nTools: {{ tools | tojson }}\n"
    'A call: <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call><|end|>{% endif %}'
    "{% for message in messages %}<|turn|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    '<tool_call>{"name": {{ call.function.name | tojson }}, "arguments": '
    "{% if call.function.arguments is string %}{{ call.function.arguments }}"
    "{% else %}{{ call.function.arguments | tojson }}{% endif %}}</tool_call>"
    "{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant"
    "{{ '\t' if messages[-1].role == 'tool' else '\n' }}{% endif %}"
)


def write_model(path: str) -> None:
    """Write the vocabulary, the template and the weights."""
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 4, *[gguf.TokenType.BYTE] * 256]
    tokens += ["\u2581", *(chr(code) for code in range(33, 127)), *WHOLE]
    kinds += [gguf.TokenType.NORMAL] * 95 + [gguf.TokenType.USER_DEFINED] * len(WHOLE)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(SPECIAL.index("<|end|>"))
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    for name, values in weights(tokens).items():
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def weights(tokens: list[str]) -> dict[str, np.ndarray]:
    """Return weights by which every token of `FOLLOWS` asks for the next one; the others ask for nothing."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((len(tokens), WIDTH)) / np.sqrt(WIDTH)
    output = np.zeros((len(tokens), WIDTH))
    for before, after in FOLLOWS.items():
        spelled = f"<0x{ord(before):02X}>" if len(before) == 1 else before
        output[tokens.index(after)] += 2 * vectors[tokens.index(spelled)]
    found = {"token_embd.weight": vectors, "output.weight": output, "output_norm.weight": np.ones(WIDTH)}
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            found[f"blk.{layer}.{name}.weight"] = np.ones(WIDTH)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            found[f"blk.{layer}.{name}.weight"] = np.zeros((WIDTH, WIDTH))
        for name in ("ffn_gate", "ffn_up"):
            found[f"blk.{layer}.{name}.weight"] = np.zeros((HIDDEN, WIDTH))
        found[f"blk.{layer}.ffn_down.weight"] = np.zeros((WIDTH, HIDDEN))
    return found


if __name__ == "__main__":
    write_model(sys.argv[1])
