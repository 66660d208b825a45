"""Tokens and what carries loss against transformers and TRL, on conversations, completions and texts.

Ids are those of apply_chat_template, masks those that TRL's training templates give ({% generation %} blocks), with a byte-level BPE
tokenizer and one in the manner of SentencePiece, both trained on the spot. Completions: TRL's rule, which masks the tokens that the
prompt alone and the whole have in common.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import templates as T  # ends with 77 where packages are missing

try:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

SPECIAL = ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
           "<|begin_of_text|>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
CORPUS = ["the river opens the gate, the water rises and falls\n\n", "system user assistant model what is it? it is the lock.", "über naïve 東京 🙂", "[INST] [/INST] <<SYS>>"] * 4
SAMPLES = 200


def byte_level(folder):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=SPECIAL))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])
    t.save(os.path.join(folder, "tokenizer.json"))


def sentence_like(folder):
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL + [f"<0x{i:02X}>" for i in range(256)]))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])
    t.save(os.path.join(folder, "tokenizer.json"))


def encoded(build, folder, family, lines, bos, eos):
    path = os.path.join(folder, "data.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    out = subprocess.run([os.path.join(build, "encode_chats"), folder, family, path, bos or "", eos], stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in out.split(b"\n") if line]


def training_template(family):
    if family in T.OWN:
        return T.OWN[family], None
    name = T.SHIPPED[family]
    training = T.TRL / f"{name}_training.jinja"
    return (training.read_text(encoding="utf-8") if training.exists() else None), (T.TRL / f"{name}.jinja").read_text(encoding="utf-8")


def check_chats(build, folder, hf, kind, family):
    marked, stock = training_template(family)
    if marked is None:
        return 0
    made = [c for c in T.cases(family, 3 * SAMPLES) if not c["prompts"] and c["messages"][-1]["role"] == "assistant"
            and all(m["content"].strip() for m in c["messages"])][:SAMPLES]
    bos, eos = made[0]["bos"], made[0]["eos"]
    same = compared = 0
    for case, got in zip(made, encoded(build, folder, family, [{"messages": c["messages"]} for c in made], bos, eos)):
        kinds = {k: v for k, v in (("bos_token", bos), ("eos_token", eos)) if v is not None}
        if stock is not None and T.render(stock, case)[0] != T.render(marked, case)[0]:
            continue
        text, spans = T.render_jinja_template(conversations=[case["messages"]], chat_template=marked, return_assistant_tokens_mask=True, **kinds)
        whole = hf(text[0], add_special_tokens=False, return_offsets_mapping=False)
        mask = [0] * len(whole["input_ids"])
        for begin, end in spans[0]:
            first, last = whole.char_to_token(begin), whole.char_to_token(end - 1)
            for i in range(first, last + 1 if last else len(mask)):
                mask[i] = 1
        compared += 1
        if got.get("ids") == whole["input_ids"] and got.get("loss") == mask:
            same += 1
        elif same + 2 > compared:
            print(f"  {family}: {json.dumps(case['messages'])}\n    got  {got}\n    want {whole['input_ids']} {mask}")
    print(f"{kind:14} {family:16} {same:4} of {compared} conversations: ids and masks equal")
    return compared - same


def check_completions(build, folder, hf, kind):
    rng = random.Random("completions")
    made = [{"prompt": T.content(rng, "user"), "completion": T.content(rng, "user")} for _ in range(SAMPLES)]
    made = [m for m in made if m["completion"].strip()]
    same = 0
    for case, got in zip(made, encoded(build, folder, "chatml", made, "<s>", "</s>")):
        completion = case["completion"] if case["completion"].endswith("</s>") else case["completion"] + "</s>"
        prompt, whole = hf(case["prompt"])["input_ids"], hf(case["prompt"] + completion)["input_ids"]
        known = 0
        while known < min(len(prompt), len(whole)) and prompt[known] == whole[known]:
            known += 1
        good = got.get("ids") == whole and got.get("loss") == [0] * known + [1] * (len(whole) - known)
        same += good
        if not good and same + 2 > len(made):
            print(f"  {case}\n    got  {got}\n    want {whole} {known}")
    print(f"{kind:14} {'completions':16} {same:4} of {len(made)}: ids and masks equal")
    return len(made) - same


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    faults = 0
    for kind, make in (("byte-level", byte_level), ("sentence-like", sentence_like)):
        with tempfile.TemporaryDirectory() as folder:
            make(folder)
            hf = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), bos_token="<s>", eos_token="</s>")
            for family in [*T.OWN, *T.SHIPPED]:
                if family != "alpaca":  # it takes the post-processor's tokens, which apply_chat_template does not
                    faults += check_chats(build, folder, hf, kind, family)
            faults += check_completions(build, folder, hf, kind)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
