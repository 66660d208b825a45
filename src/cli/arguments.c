/* arguments.c: one table of options feeds getopt_long, --help, manual pages, completion and the suggestions, so that they
 * cannot drift apart. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/manual.h"

/* Largest values of options: whole numbers are ints of the library, sizes are exact as doubles. */
#define MOST_COUNT  INT32_MAX
#define MOST_NUMBER 1e9
#define MOST_BYTES  9007199254740992.0

typedef enum { ARG_FLAG, ARG_TEXT, ARG_PAGE, ARG_INTEGER, ARG_NUMBER, ARG_SIZE, ARG_SETS, ARG_STOPS } argument_kind;

typedef struct argument {
    const char *name;
    argument_kind kind;
    size_t offset;     /* in cli_arguments */
    const char *value; /* its name in the help, by which completion goes: FILE, FOLDER, PATH, "a|b"; NULL for flags */
    const char *commands; /* space on both sides of each name; NULL: all */
    const char *help;
    int64_t min; /* numbers */
} argument;

#define AT(field)   offsetof(cli_arguments, field)
#define WITH_CONFIG " plan train tune eval generate config "

static const argument arguments[] = {
    { "model", ARG_TEXT, AT(model), "FOLDER", WITH_CONFIG,
      "folder of a model as Hugging Face's transformers keeps it; the same as model.path, and enough without CONFIG; "
      "plan: "
      "or the name of a published model, such as llama-3.1-8b",
      0 },
    { "data", ARG_TEXT, AT(data), "FILE", WITH_CONFIG,
      "data: data.path, and data.type by the file: .jsonl, .json (also .gz), .bin and .npy of tokens, or text", 0 },
    { "lora", ARG_FLAG, AT(lora), NULL, WITH_CONFIG,
      "train adapters instead of the whole model: lora.enabled, which chooses what is not given", 0 },
    { "adapter", ARG_TEXT, AT(adapter), "FOLDER", WITH_CONFIG,
      "folder of a PEFT adapter to use, or to train on: lora.path", 0 },
    { "out", ARG_TEXT, AT(save), "FOLDER", " plan train config ",
      "folder to write when the run is over: \"save\"; without CONFIG NAME-lora or NAME-tuned, unless that is there",
      0 },
    { "set", ARG_SETS, AT(sets), "KEY=VALUE", WITH_CONFIG "compare ",
      "set a key of the configuration after reading it; may be repeated", 0 },
    { "ranks", ARG_INTEGER, AT(ranks), "N", " plan train tune devices compare ",
      "number of ranks, which share this machine; train and tune start them, plan only plans for them, devices "
      "measures with "
      "so many at once",
      1 },
    { "resume", ARG_FLAG, AT(resume), NULL, " train ",
      "continue from the newest valid checkpoint in checkpoint.path; without one, start from the beginning", 0 },
    { "max-restarts", ARG_INTEGER, AT(max_restarts), "N", " train ",
      "restart from the newest checkpoint when a rank is lost, at most N times", 0 },
    { "steps", ARG_INTEGER, AT(steps), "N", " tune compare ",
      "steps to measure of each arrangement, 6 unless given; compare: of every run, 20 unless given", 2 },
    { "keep", ARG_INTEGER, AT(keep), "K", " tune ",
      "how many arrangements to measure, of those expected to be fastest; default: 4", 1 },
    { "weights", ARG_TEXT, AT(weights), "FILE", " eval generate ",
      "safetensors file to load; default: the newest checkpoint, else the file that \"save\" names", 0 },
    { "best", ARG_FLAG, AT(best), NULL, " eval generate export ",
      "take the best checkpoint of the folder, which checkpoint.keep_best keeps, not the newest", 0 },
    { "predictions", ARG_TEXT, AT(predictions), "FILE", " eval ",
      "write what the model made of every sample, one a row: .csv or .jsonl", 0 },
    { "prompt", ARG_TEXT, AT(prompt), "TEXT", " generate ", "text to start with", 0 },
    { "tokens", ARG_INTEGER, AT(tokens), "N", " generate ", "number of tokens to generate", 1 },
    { "temperature", ARG_NUMBER, AT(temperature), "X", " generate ",
      "sampling temperature; 0: always take the most likely token", 0 },
    { "top-k", ARG_INTEGER, AT(top_k), "N", " generate ", "sample from the N most likely tokens only; 0: from all", 0 },
    { "top-p", ARG_NUMBER, AT(top_p), "X", " generate ",
      "sample from the most likely tokens that have the probability X together; 1: from all", 0 },
    { "min-p", ARG_NUMBER, AT(min_p), "X", " generate ",
      "leave out tokens less likely than X times the likeliest; 0: none", 0 },
    { "repetition-penalty", ARG_NUMBER, AT(repetition_penalty), "X", " generate ",
      "make tokens that were there before less likely; 1: no less", 0 },
    { "seed", ARG_INTEGER, AT(seed), "N", " generate ", "seed of the draws; default: the configuration's", 0 },
    { "stop", ARG_STOPS, AT(stops), "TEXT", " generate ", "end the reply before this text; may be repeated", 0 },
    { "prompts", ARG_TEXT, AT(prompts), "FILE", " generate ",
      "file of prompts, one a line: text, or {\"prompt\": \"...\"} or {\"messages\": [...]}; replies are written as "
      "JSON, one a line",
      0 },
    { "chat", ARG_FLAG, AT(chat), NULL, " generate ",
      "write prompts as the model's chat template has them; without --prompt and --prompts: talk, line by line", 0 },
    { "system", ARG_TEXT, AT(system), "TEXT", " generate ", "chat: what stands before the conversation", 0 },
    { "template", ARG_TEXT, AT(template_name), "NAME", " generate ",
      "chat: the template, such as chatml; default: data.template, or that of the model's folder", 0 },
    { "batch", ARG_INTEGER, AT(batch), "N", " generate ", "sequences computed at a time; default: up to 8", 1 },
    { "out", ARG_TEXT, AT(out), "PATH", " export generate merge tokenize report compare ",
      "file to write (also -o); report: default RUN/report.html; compare: also a page, FILE.html; merge: a folder; "
      "export: or a model's folder, "
      "FOLDER/; tokenize: .npy at its end makes "
      "it NumPy's",
      0 },
    { "dtype", ARG_TEXT, AT(dtype), "fp32|bf16|fp16", " export merge ",
      "type of the weights; default: export the exact fp32 values, merge the base's type", 0 },
    { "lines", ARG_FLAG, AT(lines), NULL, " tokenize ", "every line is a document; otherwise every file is", 0 },
    { "eos", ARG_TEXT, AT(eos), "TOKEN", " tokenize ",
      "put this token after every document; auto: the one that ends texts in this vocabulary", 0 },
    { "special-tokens", ARG_FLAG, AT(special_tokens), NULL, " tokenize ",
      "special tokens that the text spells are these tokens; otherwise they are plain text", 0 },
    { "add-special", ARG_FLAG, AT(add_special), NULL, " tokenize ",
      "put around every document what the tokenizer says, such as <s>", 0 },
    { "token-type", ARG_TEXT, AT(dtype), "uint16|uint32", " tokenize ",
      "type of the ids; default: uint16 where the vocabulary has at most 65536 ids", 0 },
    { "validation", ARG_NUMBER, AT(validation), "SHARE", " tokenize ",
      "write this share of the tokens, the last ones, to a file of their own", 0 },
    { "validation-out", ARG_TEXT, AT(validation_out), "FILE", " tokenize ",
      "that file; default: the name of --out with .validation before its ending", 0 },
    { "llmc", ARG_FLAG, AT(llmc), NULL, " tokenize ", "begin the file with the header of llm.c", 0 },
    { "threads", ARG_INTEGER, AT(threads), "N", " tokenize ", "threads to use; default: all CPUs", 1 },
    { "shard-size", ARG_SIZE, AT(shard_size), "BYTES", " export merge ",
      "split into files of at most so many bytes, such as 5GiB, with an index", 1 },
    { "rounds", ARG_INTEGER, AT(rounds), "N", " compare ", "runs of each configuration, in turn; default: 2", 1 },
    { "seeds", ARG_INTEGER, AT(seeds), "N", " compare ",
      "seeds of which each is run so often: losses are means, with the spread; default: 1, the configuration's", 1 },
    { "measure", ARG_FLAG, AT(measure), NULL, " devices ",
      "measure how fast the device is (some seconds; about 45 with a GPU)", 0 },
    { "device", ARG_TEXT, AT(device), "auto|cpu|cuda", " devices doctor ",
      "device to measure, or that must be usable; auto: a GPU if there is one", 0 },
    { "machine", ARG_TEXT, AT(machine), "FILE", " plan train tune devices ",
      "devices: write the measured rates to FILE; plan: plan for the machine that FILE describes; train: plan with its "
      "rates; plan, train, tune: `default` measures nothing and takes the rates that such a machine usually has",
      0 },
    { "log", ARG_TEXT, AT(log), "FILE", " train ",
      "append what happens to FILE: .jsonl has every event, .csv a row a step (docs/watch.md)", 0 },
    { "gpu", ARG_TEXT, AT(gpu), "NAME", " plan ",
      "plan for this GPU or machine, such as rtx4090 or dgx-h100, which need not be here; list: print all names", 0 },
    { "gpus", ARG_INTEGER, AT(gpus), "N", " plan ",
      "so many of them, one rank each; default: one, or all of the machine", 1 },
    { "ram", ARG_SIZE, AT(ram), "SIZE", " plan ", "host memory of the machine of --gpu, such as 64GiB", 1 << 20 },
    { "host", ARG_TEXT, AT(host), "NAME", " plan ", "processor and memory beside --gpu, such as desktop-ddr5", 0 },
    { "what-if", ARG_FLAG, AT(what_if), NULL, " plan ",
      "plan also what could be chosen otherwise: adapters, states, clipping, micro-batch, RAM, GPUs, stage", 0 },
    { "known", ARG_FLAG, AT(known), NULL, " devices ", "print the machines and models that plan knows by name", 0 },
    { "trace", ARG_TEXT, AT(trace), "FILE", " train ",
      "write a timeline of one step, predicted and measured, for Perfetto or chrome://tracing (docs/trace.md)", 0 },
    { "report", ARG_PAGE, AT(report), "[FILE.html]", " plan train ",
      "write a page: of the plan, or after the run of all that happened; train without FILE: report.html in "
      "checkpoint.path (docs/report.md)",
      0 },
    { "markdown", ARG_FLAG, AT(markdown), NULL, " config ", "print every key, as the page docs/config.md", 0 },
    { "json", ARG_FLAG, AT(json), NULL, " plan train tune eval generate inspect status compare doctor ",
      "print JSON for programs", 0 },
    { "quiet", ARG_FLAG, AT(quiet), NULL, " plan train tune eval generate export merge tokenize verify ",
      "print results, warnings and errors only", 0 },
    { "notes", ARG_FLAG, AT(notes), NULL, WITH_CONFIG,
      "print every note on a line of its own: also why keys have no effect, and what \"auto\" stands for", 0 },
    { "help", ARG_FLAG, AT(help), NULL, NULL, "print this text", 0 },
};
enum { ARGUMENT_COUNT = sizeof arguments / sizeof arguments[0], FIRST_CODE = 256 };

static bool belongs(const argument *a, const cli_command *command)
{
    char name[32];
    snprintf(name, sizeof name, " %s ", command->name);
    return a->commands == NULL || strstr(a->commands, name) != NULL;
}

bool cli_option_at(const cli_command *command, int index, cli_option *out)
{
    for (int i = 0; i < ARGUMENT_COUNT; i++) {
        const argument *a = &arguments[i];
        if (!belongs(a, command) || index-- > 0) continue;
        *out = (cli_option){ .name = a->name, .value = a->value, .help = a->help };
        return true;
    }
    return false;
}

/* Length of the longest common subsequence: how many letters two words share in order. */
static size_t shared_letters(const char *a, const char *b)
{
    size_t counts[64] = { 0 }; /* of the part of a read so far with each prefix of b */
    size_t length = strlen(b) < 63 ? strlen(b) : 63;
    for (; *a != '\0'; a++) {
        size_t diagonal = 0;
        for (size_t j = 0; j < length; j++) {
            size_t above = counts[j + 1];
            if (*a == b[j])
                counts[j + 1] = diagonal + 1;
            else if (counts[j] > above)
                counts[j + 1] = counts[j];
            diagonal = above;
        }
    }
    return counts[length];
}

const char *cli_nearest(const char *name, const char *const *names, size_t count, size_t stride)
{
    const char *nearest = NULL;
    double best = 0.6; /* share of letters in common that makes a likely misspelling */
    for (size_t i = 0; i < count; i++) {
        const char *candidate = *(const char *const *)(const void *)((const char *)(const void *)names + i * stride);
        double likeness =
            2.0 * (double)shared_letters(name, candidate) / (double)(strlen(name) + strlen(candidate) + 1);
        if (likeness <= best) continue;
        best = likeness;
        nearest = candidate;
    }
    return nearest;
}

static bool unknown_option(const cli_command *command, const char *given)
{
    const char *names[ARGUMENT_COUNT];
    char name[64];
    size_t count = 0;
    for (int i = 0; i < ARGUMENT_COUNT; i++)
        if (belongs(&arguments[i], command)) names[count++] = arguments[i].name;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given + strspn(given, "-"), "="), given + strspn(given, "-"));
    const char *nearest = cli_nearest(name, names, count, sizeof names[0]);
    if (nearest != NULL)
        cli_usage("%s: unknown option \"%s\"; did you mean --%s?", command->name, given, nearest);
    else
        cli_usage("%s: unknown option \"%s\"; see sluice %s --help", command->name, given, command->name);
    return false;
}

static bool read_integer(const argument *a, const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < a->min || value > MOST_COUNT) {
        cli_usage("--%s: \"%s\" is not a whole number from %lld to %d", a->name, text, (long long)a->min, MOST_COUNT);
        return false;
    }
    *out = value;
    return true;
}

static bool read_number(const argument *a, const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= (double)a->min && value <= MOST_NUMBER)) {
        cli_usage("--%s: \"%s\" is not a number from %lld to %.0f", a->name, text, (long long)a->min, MOST_NUMBER);
        return false;
    }
    *out = value;
    return true;
}

/* Bytes, with a unit of 1,024 or of 1,000 behind the number, as settings have them. */
static bool read_size(const argument *a, const char *text, int64_t *out)
{
    static const char *const units[][2] = {
        { "", "" }, { "KiB", "kB" }, { "MiB", "MB" }, { "GiB", "GB" }, { "TiB", "TB" }
    };
    char *end;
    double value = strtod(text, &end), factors[] = { 1, 1 };
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++, factors[0] *= 1024, factors[1] *= 1000)
        for (int k = 0; k < 2; k++) {
            const double bytes = value * factors[k];
            if (strcmp(end, units[i][k]) != 0 || !(bytes >= (double)a->min && bytes <= MOST_BYTES)) continue;
            *out = (int64_t)bytes;
            return true;
        }
    cli_usage("--%s: \"%s\" is not a size from %lld to %.0f bytes; give bytes such as 5000000, 5GiB or 5GB", a->name,
              text, (long long)a->min, MOST_BYTES);
    return false;
}

static bool store(const argument *a, char *text, cli_arguments *out)
{
    void *field = (char *)out + a->offset;
    switch (a->kind) {
    case ARG_FLAG:
        *(bool *)field = true;
        return true;
    case ARG_TEXT:
    case ARG_PAGE:
        *(const char **)field = text;
        return true;
    case ARG_INTEGER:
        return read_integer(a, text, field);
    case ARG_NUMBER:
        return read_number(a, text, field);
    case ARG_SIZE:
        return read_size(a, text, field);
    case ARG_SETS:
        out->sets[out->set_count++] = text;
        return true;
    case ARG_STOPS:
        out->stops[out->stop_count++] = text;
        return true;
    }
    return false;
}

/* One answer of getopt_long that is not an option of the table. */
static bool bad_option(const cli_command *command, int answer, char **argv)
{
    char letter[] = { '-', (char)optopt, '\0' };
    if (optopt >= FIRST_CODE) {
        cli_usage("%s: --%s %s", command->name, arguments[optopt - FIRST_CODE].name,
                  answer == ':' ? "needs a value" : "takes no value");
        return false;
    }
    return unknown_option(command, optopt != 0 ? letter : argv[optind - 1]);
}

/* Of names, which needs nothing else. */
static bool asks_for_list(const cli_arguments *a)
{
    return a->gpu != NULL && strcmp(a->gpu, "list") == 0;
}

static bool read_operand(const cli_command *command, int argc, char **argv, cli_arguments *out)
{
    int allowed = command->operand != NULL;
    const char *more = command->operand != NULL ? strchr(command->operand, ' ') : NULL;
    if (argc > allowed && more == NULL) {
        cli_usage("%s: unexpected argument \"%s\"", command->name, argv[allowed]);
        return false;
    }
    if (argc < allowed && !command->operand_optional && !out->help && out->model == NULL && !asks_for_list(out)) {
        cli_usage("%s: %s is missing; see sluice %s --help", command->name, command->operand, command->name);
        return false;
    }
    if (argc == allowed && more != NULL && more[1] != '[' && !out->help) {
        cli_usage("%s:%s is missing; see sluice %s --help", command->name, more, command->name);
        return false;
    }
    if (argc > 0) out->operand = argv[0];
    if (argc > allowed) {
        out->operands = argv + allowed;
        out->operand_count = argc - allowed;
    }
    return true;
}

static int has_argument(argument_kind kind)
{
    if (kind == ARG_PAGE) return optional_argument;
    return kind != ARG_FLAG ? required_argument : no_argument;
}

/* Of the option that getopt_long has just found. A page may be named or not: what follows is its name where it ends as one. */
static char *value_of(const argument *a, int argc, char **argv)
{
    static char none[] = "";
    if (a->kind != ARG_PAGE || optarg != NULL) return optarg;
    const char *next = optind < argc ? argv[optind] : "", *dot = strrchr(next, '.');
    return next[0] != '-' && dot != NULL && strcmp(dot, ".html") == 0 ? argv[optind++] : none;
}

static bool read_options(const cli_command *command, int argc, char **argv, cli_arguments *out)
{
    struct option long_options[ARGUMENT_COUNT + 1] = { 0 };
    int count = 0, answer;
    bool writes = false; /* has -o for --out */
    for (int i = 0; i < ARGUMENT_COUNT; i++)
        if (belongs(&arguments[i], command)) {
            long_options[count++] = (struct option){ .name = arguments[i].name,
                                                     .has_arg = has_argument(arguments[i].kind),
                                                     .val = FIRST_CODE + i };
            writes = writes || arguments[i].offset == AT(out);
        }
    opterr = 0;
    while ((answer = getopt_long(argc, argv, writes ? ":ho:" : ":h", long_options, NULL)) != -1) {
        if (answer == 'h')
            out->help = true;
        else if (answer == 'o')
            out->out = optarg;
        else if (answer < FIRST_CODE)
            return bad_option(command, answer, argv);
        else if (!store(&arguments[answer - FIRST_CODE], value_of(&arguments[answer - FIRST_CODE], argc, argv), out))
            return false;
    }
    return read_operand(command, argc - optind, argv + optind, out);
}

bool cli_parse(const cli_command *command, int argc, char **argv, cli_arguments *out)
{
    *out = (cli_arguments){ .ranks = -1,
                            .steps = -1,
                            .rounds = -1,
                            .seeds = -1,
                            .max_restarts = -1,
                            .shard_size = -1,
                            .tokens = -1,
                            .top_k = -1,
                            .temperature = -1,
                            .top_p = -1,
                            .min_p = -1,
                            .repetition_penalty = -1,
                            .seed = -1,
                            .batch = -1,
                            .threads = -1,
                            .gpus = -1,
                            .ram = -1,
                            .validation = -1,
                            .keep = -1 };
    out->sets = calloc(2 * (size_t)argc, sizeof *out->sets); /* every argument may be one, or a stop string */
    if (out->sets == NULL) {
        cli_usage("out of memory");
        return false;
    }
    out->stops = out->sets + argc;
    if (read_options(command, argc, argv, out)) return true;
    free(out->sets);
    return false;
}
