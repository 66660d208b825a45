/* manual.c: a page for every command, and the exit statuses. */
#include "cli/manual.h"

#include <string.h>

const char cli_purpose[] = "trains neural networks larger than the memory of the device that computes them";

const cli_status_meaning cli_statuses[] = {
    { "0", "success" },
    { "1", "any other failure" },
    { "2", "wrong command line or configuration" },
    { "3", "the model does not fit in memory" },
    { "4", "an input file is missing, malformed or of another model" },
    { "5", "a rank was lost" },
    { "6", "input/output error, also on standard output" },
    { "7", "a loss, gradient or weight is not finite" },
    { "75", "stopped by a signal, after saving a checkpoint where there was a step to save" },
};
const size_t cli_status_count = sizeof cli_statuses / sizeof cli_statuses[0];

const cli_page cli_pages[] = {
    { .command = "plan",
      .text =
          "Decides where every byte of weights, gradients, optimizer state and activations would live, what would "
          "move when, and how long a step would take, and prints that. Nothing is trained, read or written.\n\n"
          "`CONFIG` is a JSON file in DeepSpeed's format with sections for the model and the data. With `--model` a "
          "folder of a published model is enough.\n\n"
          "A model that does not fit is refused with the bytes that are missing and with what would help.\n\n"
          "Planning that takes longer than three seconds is told of on standard error, unless `--quiet` or `--json` "
          "asks for silence.",
      .examples = { { "sluice plan my.json --set memory.device=16MiB", "what it would take in 16 MiB" },
                    { "sluice plan my.json --ranks 4 --set zero_optimization.stage=3", "the share of each of 4 ranks" },
                    { "sluice plan --model Llama-3.1-8B --lora", "whether a folder of a model can be tuned here" },
                    { "sluice plan --model llama-3.1-8b --gpu rtx4090 --ram 64GiB --lora",
                      "or on a machine that is not here" } },
      .statuses = " 0 1 2 3 4 6 ",
      .see = " plan.md machines.md gpu.md ranks.md " },
    { .command = "train",
      .text =
          "Makes the plan that `sluice plan` prints and follows it to the byte. Checkpoints go to the folder that the "
          "key `checkpoint.path` names, the weights at the end to `save`.\n\n"
          "`SIGTERM`, `SIGINT` (Ctrl-C) and `SIGHUP` finish the step, save and end the run with exit status 75; "
          "`--resume` goes on from there to the same bits, also on another number of ranks or in less memory. "
          "`SIGUSR1` saves and goes on.\n\n"
          "`--ranks` starts several ranks on this machine; under `mpirun` and `srun` every process is a rank.",
      .examples = { { "sluice train my.json", "train as the file says" },
                    { "sluice train my.json --resume --set memory.device=16MiB", "go on, in less memory" },
                    { "sluice train --model Llama-3.1-8B --data chat.jsonl --lora", "tune a published model" },
                    { "mpirun -n 8 sluice train my.json --set zero_optimization.stage=2", "eight ranks under MPI" } },
      .statuses = " 0 1 2 3 4 5 6 7 75 ",
      .see = " config.md resume.md ranks.md finetune.md guides/failures.md " },
    { .command = "tune",
      .text = "Measures the arrangements of a step that the plan expects to be fastest (ZeRO stage, levels, "
              "prefetching, buckets, "
              "and the micro-batch where it is open), some steps of each, and keeps the fastest in `tuned.json` in "
              "`checkpoint.path`; `train` takes it for keys that are on `auto`. Nothing is trained or saved.",
      .examples = { { "sluice tune my.json", "the best four, six steps of each" },
                    { "sluice tune my.json --ranks 4 --keep 8 --steps 20",
                      "more of them, for longer, on four ranks" } },
      .statuses = " 0 1 2 3 4 5 6 7 75 ",
      .see = " plan.md " },
    { .command = "compare",
      .text =
          "Runs configurations in turn, some steps of each, and prints step time, tokens a second, memory by tier, "
          "what "
          "moves, and losses side by side, and whether the weights are the same to the bit or from which step on they "
          "differ. One configuration alone is compared with the same without ZeRO, offload and recomputation. With "
          "`--out FILE.html` it makes a page of it, too: one file, with bars of time and memory, and the losses over "
          "each "
          "other.",
      .examples = { { "sluice compare a.json b.json", "two configurations" },
                    { "sluice compare my.json --seeds 3 --json", "against its plain self, over seeds, for programs" },
                    { "sluice compare a.json b.json -o page.html", "and a page to look at" } },
      .statuses = " 0 1 2 3 4 5 6 7 75 ",
      .see = " compare.md " },
    { .command = "status",
      .text = "Tells how runs are doing, from another terminal or another machine with the same file system: running, "
              "finished, "
              "stopped, failed or dead (killed, without a word), at which step, with which loss, best evaluation, "
              "speed and time "
              "left, the newest checkpoint and the newest warning. `RUN` is the `checkpoint.path` of a run, or a "
              "folder with several. "
              "Nothing of the run is changed.",
      .examples = { { "sluice status runs/a", "one run" },
                    { "sluice status runs", "a table of all runs there" },
                    { "sluice status runs/a --json", "for programs" } },
      .statuses = " 0 1 2 4 6 ",
      .see = " watch.md " },
    { .command = "report",
      .text = "Makes one HTML file of a run, from the events and the profile of a step that `train` keeps in its "
              "`checkpoint.path`: the result, loss, speed and learning rate, memory of each tier over a step, the "
              "streams of a step as "
              "predicted and as measured, layers, configuration and machine. It needs no network and no server. A run "
              "may still be "
              "under way, or be dead.",
      .examples = { { "sluice report runs/a", "runs/a/report.html" },
                    { "sluice report runs/a -o a.html", "another file" } },
      .statuses = " 0 1 2 4 6 75 ",
      .see = " report.md watch.md " },
    { .command = "eval",
      .text =
          "Computes the loss on the validation data, and accuracy, F1 and other metrics where the model has them. The "
          "weights are those of the newest checkpoint, or of the file that `--weights` names.",
      .examples = { { "sluice eval my.json", "loss of the newest checkpoint" },
                    { "sluice eval my.json --best --predictions out.csv", "what the best one makes of every sample" } },
      .statuses = " 0 1 2 3 4 6 7 75 ",
      .see = " evaluate.md " },
    { .command = "generate",
      .text = "Writes text with a trained language model: what follows `--prompt`, replies to a file of prompts, or a "
              "conversation with `--chat`.",
      .examples = { { "sluice generate my.json --prompt \"The \" --tokens 300 --temperature 0.8", "go on with a text" },
                    { "sluice generate --model Llama-3.1-8B --adapter Llama-3.1-8B-lora --chat",
                      "talk to a tuned model, line by line" } },
      .statuses = " 0 1 2 3 4 6 7 75 ",
      .see = " generate.md " },
    { .command = "merge",
      .text =
          "Adds the LoRA adapter in the folder `ADAPTER`, as PEFT keeps it, to the weights of the model in the folder "
          "`BASE` and writes a folder that transformers opens.",
      .examples = { { "sluice merge Llama-3.1-8B Llama-3.1-8B-lora -o tuned", "one folder of both" } },
      .statuses = " 0 1 2 4 6 7 75 ",
      .see = " finetune.md " },
    { .command = "tokenize",
      .text = "Turns texts into a file of token ids by the tokenizer of a model's folder. `TEXT` is a file, or - for "
              "standard input.",
      .examples = { { "sluice tokenize gpt2 input.txt --eos auto -o train.bin", "a token file to train on" },
                    { "echo Hello | sluice tokenize gpt2 -", "ids and tokens of a text" } },
      .statuses = " 0 1 2 4 6 75 ",
      .see = " tokenizers.md " },
    { .command = "export",
      .text = "Writes the weights of a checkpoint as safetensors: of a step's folder, or of the newest checkpoint that "
              "verifies in a folder of checkpoints. A path with a slash at its end becomes a model's folder.",
      .examples = { { "sluice export runs/a -o model.safetensors", "the exact fp32 values in one file" },
                    { "sluice export runs/a -o model/ --dtype bf16 --shard-size 5GiB",
                      "a folder that transformers opens" } },
      .statuses = " 0 1 2 4 6 75 ",
      .see = " formats.md " },
    { .command = "inspect",
      .text =
          "Lists the tensors of a safetensors file, the steps of a folder of checkpoints, or what a model's folder is "
          "and whether it can be used here.",
      .examples = { { "sluice inspect Llama-3.1-8B", "what the folder is" },
                    { "sluice inspect runs/a --json", "checkpoints, for programs" } },
      .statuses = " 0 1 2 4 6 ",
      .see = " formats.md " },
    { .command = "verify",
      .text =
          "Reads every byte of a file or checkpoint and compares it with its checksums. The first fault is named with "
          "file, tensor and offset.",
      .examples = { { "sluice verify runs/a", "every checkpoint in the folder" } },
      .statuses = " 0 1 2 4 6 ",
      .see = " formats.md " },
    { .command = "devices",
      .text =
          "Lists the CPU and its instruction paths, memory, GPUs, and what is built in. With `--measure` it also "
          "measures how fast they are; `--machine` writes the rates to a file that `plan` and `train` take.\n\n"
          "With `FOLDER`s it measures their disks alone, as swap files use them, in two seconds each, and keeps the "
          "rates for every plan with that `memory.disk_path`; a run does the same at its first start. `A:B` are two "
          "folders that share every transfer. Without `FOLDER` it lists the disks that were measured before.",
      .examples = { { "sluice devices", "what is here" },
                    { "sluice devices --measure --machine here.json", "measure, and keep the rates" },
                    { "sluice devices --measure /scratch", "how fast swap files are there" } },
      .statuses = " 0 1 2 6 ",
      .see = " gpu.md plan.md " },
    { .command = "doctor",
      .text =
          "Looks at everything that training uses: instruction path, memory, huge pages, limits, shared memory, the "
          "GPU with its driver and libraries, MPI, and the disk of `FOLDER`, where checkpoints are to go (the "
          "current folder where none is named; some megabytes are written to it and removed).\n\n"
          "Each line is `ok`, a `note` (something is slower or missing that not every run needs) or a `problem`, and "
          "says what to do. The exit status is 0 where sluice can train on the CPU, 1 where it cannot. With "
          "`--device cuda` it is 1 also where no GPU can be used.",
      .examples = { { "sluice doctor", "this machine and this folder" },
                    { "sluice doctor runs --device cuda --json", "for a job's script: is the GPU usable?" } },
      .statuses = " 0 1 2 6 ",
      .see = " install.md gpu.md guides/failures.md " },
    { .command = "config",
      .text =
          "Prints every key with its value as `train` would have it, after the file, the options and all `auto` are "
          "resolved. Without `CONFIG` it prints every key there is. The result can be used as a configuration.",
      .examples = { { "sluice config", "every key, with type, default and meaning" },
                    { "sluice config my.json --set bf16.enabled=true", "what would be used" } },
      .statuses = " 0 1 2 4 6 ",
      .see = " config.md " },
};
const size_t cli_page_count = sizeof cli_pages / sizeof cli_pages[0];

const cli_page *cli_find_page(const char *command)
{
    static const cli_page none = { .text = "", .statuses = " 0 1 2 ", .see = "" };
    for (size_t i = 0; i < cli_page_count; i++)
        if (strcmp(cli_pages[i].command, command) == 0) return &cli_pages[i];
    return &none;
}

bool cli_page_has_status(const cli_page *page, const char *status)
{
    char word[8];
    snprintf(word, sizeof word, " %s ", status);
    return strstr(page->statuses, word) != NULL;
}

bool cli_item(const char *list, int index, char *out, size_t bytes)
{
    const char *p = list + strspn(list, " |");
    for (; *p != '\0' && index > 0; index--) {
        p += strcspn(p, " |");
        p += strspn(p, " |");
    }
    snprintf(out, bytes, "%.*s", (int)strcspn(p, " |"), p);
    return *p != '\0';
}

void cli_usage_line(const cli_command *command, char *out, size_t bytes)
{
    bool some = command->operand != NULL, free_to_give = command->operand_optional;
    snprintf(out, bytes, "%s%s%s%s%s", command->name, some ? " " : "", some && free_to_give ? "[" : "",
             some ? command->operand : "", some && free_to_give ? "]" : "");
}
