"""Chat templates against transformers: the text byte for byte, and what carries loss.

    templates.py BUILD            200 made conversations a family
    templates.py BUILD --record   writes tests/fixtures/chat_templates.jsonl and chat_jinja.json for the tests that need no Python

The Jinja texts of the families are those that TRL ships, where it ships them; the others are written down here from what the
families' formats are. Masks: TRL's training templates ({% generation %} blocks), where they write the same text.
"""
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

try:
    import trl
    from transformers.utils.chat_template_utils import render_jinja_template
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

TRL = Path(trl.__file__).parent / "chat_templates"
CONVERSATIONS = 200

# What a family's turns look like, in Jinja. G and E are the marks of what the model writes.
ALTERNATE = "{% if (m.role == 'user') != (loop.index0 % 2 == 0) or m.role == 'system' %}{{ raise_exception('turns') }}{% endif %}"
SPLIT = "{% set sys = messages[0].content if messages[0].role == 'system' else none %}{% set rest = messages[1:] if sys is not none else messages %}"
G, E = "{% generation %}", "{% endgeneration %}"


def mistral(before, after, lead, answer, place):
    join = "{{ sys + '\\n\\n' if sys is not none and " + place + " else '' }}"
    return (SPLIT + "{{ bos_token }}{% for m in rest %}" + ALTERNATE + "{% if m.role == 'user' %}" + before + join
            + "{{ m.content }}" + after + "{% else %}" + G + lead + answer + "{{ eos_token }}" + E + "{% endif %}{% endfor %}")


def chatml(default):
    first = ("{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system\\n" + default + "<|im_end|>\\n' }}{% endif %}") if default else ""
    head = "{{ '<|im_start|>assistant' }}" + G + "{{ '\\n'" if default else "{{ '<|im_start|>assistant\\n' }}" + G + "{{ ''"
    return ("{% for m in messages %}" + first + "{% if m.role == 'assistant' %}" + head
            + " + m.content + '<|im_end|>\\n' }}" + E + "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
            + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


OWN = {
    "llama2": SPLIT + "{% for m in rest %}" + ALTERNATE + "{% set c = m.content %}{% if loop.first and sys is not none %}"
    "{% set c = '<<SYS>>\\n' + sys + '\\n<</SYS>>\\n\\n' + c %}{% endif %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + c.strip() + ' [/INST]' }}"
    "{% else %}" + G + "{{ ' ' + c.strip() + ' ' + eos_token }}" + E + "{% endif %}{% endfor %}",
    "mistral-v1-old": "{{ bos_token }}{% for m in messages %}" + ALTERNATE + "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}"
    + G + "{{ m.content + eos_token }}" + E + "{% endif %}{% endfor %}",
    "mistral-v1": mistral("{{ ' [INST] ' }}", "{{ ' [/INST]' }}", "{{ ' ' }}", "{{ m.content }}", "loop.first"),
    "mistral-v3": mistral("{{ '[INST] ' }}", "[/INST]", "{{ ' ' }}", "{{ m.content | trim }}", "loop.last"),
    "mistral-tekken": mistral("[INST]", "[/INST]", "", "{{ m.content }}", "loop.last"),
    "chatml": chatml(None),
    "qwen2": chatml("You are a helpful assistant."),
    "phi3-old": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>\\n' + m.content + '<|end|>\\n<|assistant|>\\n' }}"
    "{% elif m.role == 'assistant' %}" + G + "{{ m.content + '<|end|>\\n' }}" + E + "{% endif %}{% endfor %}",
    "zephyr": "{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}{% if m.role == 'assistant' %}" + G + "{{ m.content + eos_token + '\\n' }}" + E
    + "{% else %}{{ m.content + eos_token + '\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    "alpaca": "{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ 'Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\\n\\n' }}{% endif %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
    "{% elif m.role == 'user' %}{{ ('\\n\\n' if loop.index0 > 0 and messages[loop.index0 - 1].role == 'assistant' else '') + '### Instruction:\\n' + m.content + '\\n\\n' }}"
    "{% else %}{{ '### Response:\\n' }}" + G + "{{ m.content + eos_token }}" + E + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
}
SHIPPED = {"llama3": "llama3", "llama3.1": "llama3_1", "qwen2.5": "qwen2_5", "qwen3": "qwen3", "qwen3-instruct": "qwen3_instruct_2507",
           "gemma": "gemma", "gemma3": "gemma3", "phi3": "phi3", "phi3.5": "phi3_5"}
BOS_EOS = {"llama3": ("<|begin_of_text|>", "<|eot_id|>"), "llama3.1": ("<|begin_of_text|>", "<|eot_id|>"), "gemma": ("<bos>", "<eos>"),
           "gemma3": ("<bos>", "<eos>"), "phi3": ("<s>", "<|endoftext|>"), "phi3.5": ("<s>", "<|endoftext|>"), "phi3-old": ("<s>", "<|endoftext|>"),
           "qwen2": (None, "<|im_end|>"), "qwen2.5": (None, "<|im_end|>"), "qwen3": (None, "<|im_end|>"), "qwen3-instruct": (None, "<|im_end|>")}
ALTERNATING = {"llama2", "mistral-v1-old", "mistral-v1", "mistral-v3", "mistral-tekken", "gemma", "gemma3"}
NO_SYSTEM = {"mistral-v1-old", "gemma"}

WORDS = ["river", "gate", "7", "über", "naïve", "東京", "🙂", "e\u0301", "it's", "\\n", "{{ x }}", "{% if %}", "<|im_end|>", "</s>", "[INST]", "<think>", "don't", "\t", "\n", "\n\n", "-", "a" * 30]
EDGES = ["", " ", "\n", "  \n\t", "\u3000", "\u00a0", "\x1f", "\n\n\n", "\u2028", "\u200b"]


def content(rng, role):
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(0, 12)))
    text = rng.choice(EDGES) * rng.randrange(2) + text + rng.choice(EDGES) * rng.randrange(2)
    if role == "assistant" and rng.random() < 0.3:
        thought = rng.choice(EDGES) + "so it is" + rng.choice(EDGES)
        text = rng.choice(["<think>", "<think>\n", "", "x<think>\n<think>"]) + thought + rng.choice(["</think>", "\n</think>\n\n", "</think></think>\n"]) + text
    if role == "user" and rng.random() < 0.1:
        text = "<tool_response>" + text + "</tool_response>"
    return text


def conversation(rng, family):
    roles = ["user", "assistant"] * rng.randrange(1, 5)
    if family not in ALTERNATING and rng.random() < 0.3:
        roles = [rng.choice(["system", "user", "assistant"]) for _ in range(rng.randrange(1, 7))]
        if all(r == "system" for r in roles):
            roles.append("user")
    elif rng.random() < 0.3:
        roles.pop()
    if family not in NO_SYSTEM and roles[0] != "system" and rng.random() < 0.5:
        roles.insert(0, "system")
    return [{"role": r, "content": content(rng, r)} for r in roles]


def bytes_of(text, spans):
    return [[len(text[:b].encode()), len(text[:e].encode())] for b, e in spans if e > b]


def joined(spans):
    out = []
    for b, e in spans:
        if out and out[-1][1] == b:
            out[-1][1] = e
        else:
            out.append([b, e])
    return out


def render(jinja, case, **more):
    kinds = {k: v for k, v in (("bos_token", case["bos"]), ("eos_token", case["eos"])) if v is not None}
    texts, spans = render_jinja_template(conversations=[case["messages"]], chat_template=jinja, return_assistant_tokens_mask=True,
                                         add_generation_prompt=case["prompts"], **kinds, **more)
    return texts[0], joined(bytes_of(texts[0], spans[0]))


def expected(family, case):
    """Text, and spans of loss; None where nothing says what they are."""
    if family in OWN:
        return render(OWN[family], case)
    name = SHIPPED[family]
    text, _ = render((TRL / f"{name}.jinja").read_text(encoding="utf-8"), case, **({"date_string": case["date"]} if case["date"] else {}))
    training = TRL / f"{name}_training.jinja"
    if training.exists():
        marked, spans = render(training.read_text(encoding="utf-8"), case)
        return text, spans if marked == text else None
    if family == "llama3.1":  # the definition: each answer and its end mark
        at, spans = 0, []
        for m in case["messages"]:
            if m["role"] == "system" and m is case["messages"][0]:
                continue
            turn = "<|start_header_id|>" + m["role"] + "<|end_header_id|>\n\n"
            at = text.index(turn, at) + len(turn)
            end = at + len(m["content"].strip()) + len("<|eot_id|>")
            if m["role"] == "assistant":
                spans.append((at, end))
            at = end
        return text, bytes_of(text, spans)
    return text, None


def cases(family, count):
    rng = random.Random(f"templates {family}")
    bos, eos = BOS_EOS.get(family, ("<s>", "</s>"))
    made = []
    while len(made) < count:
        messages = conversation(rng, family)
        prompts = messages[-1]["role"] == "user" and rng.random() < 0.8
        date = "03 Mar 2025" if family == "llama3.1" and rng.random() < 0.5 else None
        made.append({"template": family, "bos": bos, "eos": eos, "date": date, "prompts": prompts, "messages": messages})
    return made


def ask(build, lines, *arguments):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    out = subprocess.run([os.path.join(build, "render_chats"), *arguments], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    answers = [json.loads(line) for line in out.split(b"\n") if line]
    assert len(answers) == len(lines)
    return answers


def check_family(build, family):
    made = cases(family, CONVERSATIONS)
    faults, masks = [], 0
    for case, got in zip(made, ask(build, made)):
        text, spans = expected(family, case)
        if got.get("text") != text:
            faults.append(("text", case, got.get("text", got.get("error")), text))
        elif spans is not None:
            masks += 1
            if joined(got["loss"]) != spans:
                faults.append(("loss", case, joined(got["loss"]), spans))
    print(f"{family:16} {CONVERSATIONS - sum(f[0] == 'text' for f in faults):4} of {CONVERSATIONS} texts equal, "
          f"{masks - sum(f[0] == 'loss' for f in faults):4} of {masks:3} masks equal")
    for kind, case, got, want in faults[:2]:
        print(f"  {kind}: {json.dumps(case['messages'])}\n    got  {got!r}\n    want {want!r}")
    return len(faults)


def check_refusals(build):
    """What the templates raise an exception for is refused here too."""
    turn = lambda role: {"role": role, "content": "x"}
    made = [{"template": f, "bos": "<s>", "eos": "</s>", "date": None, "prompts": False, "messages": [turn(r) for r in roles]}
            for f in sorted(ALTERNATING) for roles in (["assistant"], ["user", "user"], ["user", "assistant", "assistant"], ["system", "assistant"])]
    made += [{"template": f, "bos": "<s>", "eos": "</s>", "date": None, "prompts": False, "messages": [turn("system"), turn("user")]} for f in sorted(NO_SYSTEM)]
    faults = 0
    for case, got in zip(made, ask(build, made)):
        try:
            expected(case["template"], case)
            raised = False
        except Exception:
            raised = True
        if not raised or "error" not in got:
            print(f"  refusal: {case} raised {raised}, here {got}")
            faults += 1
    print(f"{'refusals':16} {len(made) - faults:4} of {len(made)}")
    return faults


def check_jinja(build, family):
    """The row's own Jinja text writes what the row writes, and is known as that row."""
    made = cases(family, CONVERSATIONS)
    texts = {date: ask(build, [{"template": family, "date": date}], "jinja")[0]["jinja"] for date in {case["date"] for case in made}}
    faults = []
    for case, got in zip(made, ask(build, made)):
        text, _ = render(texts[case["date"]], case)
        if got.get("text") != text:
            faults.append((case, got.get("text", got.get("error")), text))
    known = ask(build, [{"jinja": text} for text in texts.values()], "recognise")
    faults += [(answer, answer["template"], family) for answer in known if answer["template"] != family]
    print(f"{family:16} {CONVERSATIONS - len(faults):4} of {CONVERSATIONS} texts by its own Jinja")
    for case, got, want in faults[:2]:
        print(f"  {json.dumps(case)}\n    row   {got!r}\n    Jinja {want!r}")
    return len(faults)


def respell(text):
    """The same program: other white space within tags, and other quotes where no string holds one."""
    tags = re.sub(r"(\{[{%][-+]?) ", r"\1\n   ", text)
    return re.sub(r" ([-+]?[}%]\})", r"\t \1", tags)


def check_respelt(build, name, text):
    """A text that is known respelt renders as it does unchanged."""
    copy = respell(text)
    old, new = ask(build, [{"jinja": text}, {"jinja": copy}], "recognise")
    if not old["sum"]:
        return 0
    faults = int(old["sum"] != new["sum"] or old["template"] != new["template"])
    for family in ("chatml", "gemma"):
        for case in cases(family, 20):
            try:
                want = render(text, case)
            except Exception:
                continue
            faults += render(copy, case) != want
    if faults:
        print(f"  respelt: {name}: {faults} faults, {old} and {new}")
    return faults


def check_recognition(build):
    """Every template that TRL ships is the family it is, or unknown; respelt it is the same, and with a word more it is unknown."""
    files = sorted(f for f in TRL.glob("*.jinja") if not f.stem.endswith("_training"))
    known = {v: k for k, v in SHIPPED.items()} | {"llama3_2": "llama3.1"}
    lines = [{"jinja": f.read_text(encoding="utf-8")} for f in files]
    changed = [{"jinja": line["jinja"] + "{{ 'another release' }}"} for line in lines]
    faults = 0
    for f, line, exact, similar in zip(files, lines, ask(build, lines, "recognise"), ask(build, changed, "recognise")):
        want = known.get(f.stem)
        if exact["template"] != want or similar["template"] is not None or (want is not None and similar["nearest"] != want):
            print(f"  recognition: {f.stem} is {exact} and changed {similar}, not {want}")
            faults += 1
        faults += check_respelt(build, f.stem, line["jinja"])
    print(f"{'recognition':16} {len(files) - faults:4} of {len(files)} texts, as they are, respelt and changed")
    return faults


def record(build):
    out = HERE.parent / "fixtures" / "chat_templates.jsonl"
    with out.open("w", encoding="utf-8") as f:
        for family in [*OWN, *SHIPPED]:
            for case in cases(family, 12):
                text, spans = expected(family, case)
                f.write(json.dumps({**case, "text": text, "loss": spans}, ensure_ascii=False) + "\n")
    print(f"{out}: {out.stat().st_size} bytes")
    families = [*OWN, *SHIPPED]
    if any(check_jinja(build, family) for family in families):
        return 1
    texts = ask(build, [{"template": family, "date": None} for family in families], "jinja")
    sums = {family: hashlib.sha256(text["jinja"].encode()).hexdigest() for family, text in zip(families, texts)}
    out = HERE.parent / "fixtures" / "chat_jinja.json"
    out.write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")
    print(f"{out}: {len(sums)} texts")
    return 0


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SLUICE_BUILD", "build")
    if "--record" in sys.argv:
        return record(build)
    faults = sum(check_family(build, family) for family in [*OWN, *SHIPPED])
    faults += sum(check_jinja(build, family) for family in [*OWN, *SHIPPED])
    faults += check_refusals(build) + check_recognition(build)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
