/* chat_jinja.h: the built-in chat templates as Jinja, for the folders of models that were trained with one (private to
 * chat_template.c, whose rows have them).
 *
 * Each writes what its row writes, byte for byte (tests/referees/templates.py). White space around every tag is trimmed, so that
 * a text means the same with any settings of a Jinja environment. The comment in front names the row, and makes two rows that
 * write alike two texts. */
#ifndef SL_FORMAT_CHAT_JINJA_H
#define SL_FORMAT_CHAT_JINJA_H

/* The date that a template tells, in chat_template.c as here. */
#define DATE "\003"

/* clang-format off */
#define J_NAMED(name_, text_) "{#- sluice: " name_ " -#}\n" text_
#define J_SAY(text_)          "{{- " text_ " -}}\n"
#define J_SET(what_)          "{%- set " what_ " -%}\n"
#define J_IF(what_)           "{%- if " what_ " -%}\n"
#define J_ELSE                "{%- else -%}\n"
#define J_END_IF              "{%- endif -%}\n"
#define J_EACH(of_)           "{%- for m in " of_ " -%}\n"
#define J_END                 "{%- endfor -%}\n"

#define J_PROMPT(header_) J_IF("add_generation_prompt") J_SAY("'" header_ "'") J_END_IF

/* A system message in front is no turn: `system`, none without one, and `turns`. */
#define J_SYSTEM_APART \
    J_SET("system = messages[0]['content'] if messages[0]['role'] == 'system' else none") \
    J_SET("turns = messages if system is none else messages[1:]")

#define J_ALTERNATE \
    J_IF("m['role'] != ('user' if loop.index0 % 2 == 0 else 'assistant')") \
    J_SAY("raise_exception('user and assistant take turns, user first')") J_END_IF

#define J_LLAMA2 \
    J_NAMED("llama2", J_SYSTEM_APART J_EACH("turns") J_ALTERNATE J_IF("m['role'] == 'assistant'") \
    J_SAY("' ' + m['content'] | trim + ' '") J_SAY("eos_token") J_ELSE J_SET("text = m['content']") \
    J_IF("loop.first and system is not none") \
    J_SET("text = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + text") J_END_IF \
    J_SAY("bos_token") J_SAY("'[INST] ' + text | trim + ' [/INST]'") J_END_IF J_END)

#define J_LLAMA3_TURN(role_, content_) \
    J_SAY("'<|start_header_id|>' + " role_ " + '<|end_header_id|>\\n\\n' + " content_ " + '<|eot_id|>'")
#define J_LLAMA3_PROMPT J_PROMPT("<|start_header_id|>assistant<|end_header_id|>\\n\\n")
#define J_LLAMA3 \
    J_NAMED("llama3", J_SAY("bos_token") J_EACH("messages") J_LLAMA3_TURN("m['role']", "m['content'] | trim") \
    J_END J_LLAMA3_PROMPT)
#define J_LLAMA31 \
    J_NAMED("llama3.1", \
    J_SYSTEM_APART J_SET("date = date_string | default('" DATE "')") \
    J_SET("facts = 'Cutting Knowledge Date: December 2023\\nToday Date: ' + date + '\\n\\n'") \
    J_SAY("bos_token") J_LLAMA3_TURN("'system'", "facts + (system or '') | trim") \
    J_EACH("turns") J_LLAMA3_TURN("m['role']", "m['content'] | trim") J_END J_LLAMA3_PROMPT)

#define J_CHATML_TURNS \
    J_EACH("messages") \
    J_SAY("'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n'") J_END J_PROMPT("<|im_start|>assistant\\n")
#define J_CHATML_DEFAULT(system_) \
    J_IF("messages[0]['role'] != 'system'") J_SAY("'<|im_start|>system\\n" system_ "<|im_end|>\\n'") J_END_IF
#define J_CHATML         J_NAMED("chatml", J_CHATML_TURNS)
#define J_QWEN3_INSTRUCT J_NAMED("qwen3-instruct", J_CHATML_TURNS)
#define J_QWEN2          J_NAMED("qwen2", J_CHATML_DEFAULT("You are a helpful assistant.") J_CHATML_TURNS)
#define J_QWEN25 \
    J_NAMED("qwen2.5", J_CHATML_DEFAULT("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.") \
    J_CHATML_TURNS)

/* seen.question: the user message that the model answers now, which no result of a tool is. */
#define J_QWEN3 \
    J_NAMED("qwen3", \
    J_SET("seen = namespace(question=none)") J_EACH("messages") \
    J_SET("result = m['content'].startswith('<tool_response>') and " \
    "m['content'].endswith('</tool_response>')") \
    J_IF("m['role'] == 'user' and not result") J_SET("seen.question = loop.index0") J_END_IF J_END \
    J_IF("seen.question is none") J_SET("seen.question = messages | length - 1") J_END_IF \
    J_EACH("messages") J_SET("text = m['content']") J_IF("m['role'] == 'assistant'") \
    J_SET("thought = ''") J_IF("'</think>' in text") \
    J_SET("thought = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1]" \
    ".lstrip('\\n')") \
    J_SET("text = text.split('</think>')[-1].lstrip('\\n')") J_END_IF \
    J_IF("loop.index0 > seen.question and (loop.last or thought)") \
    J_SET("text = '<think>\\n' + thought.strip('\\n') + " \
    "'\\n</think>\\n\\n' + text.lstrip('\\n')") J_END_IF J_END_IF \
    J_SAY("'<|im_start|>' + m['role'] + '\\n' + text + " \
    "'<|im_end|>\\n'") J_END J_PROMPT("<|im_start|>assistant\\n"))

/* `joins`: which turn takes the system message. */
#define J_MISTRAL(name_, joins_, before_, after_, answer_) \
    J_NAMED(name_, J_SYSTEM_APART J_SAY("bos_token") J_EACH("turns") J_ALTERNATE J_IF("m['role'] == 'assistant'") \
    J_SAY(answer_) J_SAY("eos_token") J_ELSE \
    J_SET("lead = system + '\\n\\n' if system is not none and " joins_ " else ''") \
    J_SAY("'" before_ "' + lead + m['content'] + '" after_ "'") J_END_IF J_END)
#define J_MISTRAL_V1_OLD \
    J_NAMED("mistral-v1-old", J_SAY("bos_token") J_EACH("messages") J_ALTERNATE J_IF("m['role'] == 'assistant'") \
    J_SAY("m['content']") J_SAY("eos_token") J_ELSE \
    J_SAY("'[INST] ' + m['content'] + ' [/INST]'") J_END_IF J_END)
#define J_MISTRAL_V1     J_MISTRAL("mistral-v1", "loop.first", " [INST] ", " [/INST]", "' ' + m['content']")
#define J_MISTRAL_V3     J_MISTRAL("mistral-v3", "loop.last", "[INST] ", "[/INST]", "' ' + m['content'] | trim")
#define J_MISTRAL_TEKKEN J_MISTRAL("mistral-tekken", "loop.last", "[INST]", "[/INST]", "m['content']")

#define J_GEMMA_TURNS(lead_) \
    J_ALTERNATE \
    J_SAY("'<start_of_turn>' + ('model' if m['role'] == 'assistant' else 'user') + '\\n' + " lead_ \
    "m['content'] | trim + '<end_of_turn>\\n'") \
    J_END J_PROMPT("<start_of_turn>model\\n")
#define J_GEMMA J_NAMED("gemma", J_SAY("bos_token") J_EACH("messages") J_GEMMA_TURNS(""))
#define J_GEMMA3 \
    J_NAMED("gemma3", J_SYSTEM_APART J_SAY("bos_token") J_EACH("turns") \
    J_SET("lead = system + '\\n\\n' if system is not none and loop.first else ''") \
    J_GEMMA_TURNS("lead + "))

#define J_PHI3_TURN J_SAY("'<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n'")
#define J_PHI3_END  J_IF("add_generation_prompt") J_SAY("'<|assistant|>\\n'") J_ELSE J_SAY("eos_token") J_END_IF
#define J_PHI3      J_NAMED("phi3", J_EACH("messages") J_PHI3_TURN J_END J_PHI3_END)
#define J_PHI35 \
    J_NAMED("phi3.5", J_EACH("messages") J_IF("m['role'] != 'system' or m['content']") J_PHI3_TURN J_END_IF J_END \
    J_PHI3_END)
#define J_PHI3_OLD \
    J_NAMED("phi3-old", J_SAY("bos_token") J_EACH("messages") J_IF("m['role'] == 'user'") \
    J_SAY("'<|user|>\\n' + m['content'] + '<|end|>\\n<|assistant|>\\n'") \
    J_END_IF J_IF("m['role'] == 'assistant'") J_SAY("m['content'] + '<|end|>\\n'") \
    J_END_IF J_END)

#define J_ZEPHYR \
    J_NAMED("zephyr", J_EACH("messages") J_SAY("'<|' + m['role'] + '|>\\n' + m['content']") J_SAY("eos_token") \
    J_SAY("'\\n'") J_END J_PROMPT("<|assistant|>\\n"))

#define J_ALPACA(system_) \
    J_NAMED("alpaca", \
    J_IF("messages[0]['role'] != 'system'") J_SAY("'" system_ "\\n\\n'") J_END_IF J_EACH("messages") \
    J_IF("m['role'] == 'system'") J_SAY("m['content'] + '\\n\\n'") J_END_IF J_IF("m['role'] == 'user'") \
    J_IF("not loop.first and loop.previtem['role'] == 'assistant'") J_SAY("'\\n\\n'") J_END_IF \
    J_SAY("'### Instruction:\\n' + m['content'] + '\\n\\n'") J_END_IF \
    J_IF("m['role'] == 'assistant'") J_SAY("'### Response:\\n' + m['content']") \
    J_SAY("eos_token") J_END_IF J_END J_PROMPT("### Response:\\n"))

/* clang-format on */

#endif
