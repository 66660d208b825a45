/* main.c: the table of commands, each with a page in manual.c, and the way to one of them. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/cli.h"
#include "cli/manual.h"

const cli_command cli_commands[] = {
    { "plan", cli_plan, "CONFIG", false, false, "print memory, transfers and expected step time; runs nothing" },
    { "train", cli_train, "CONFIG", false, true, "plan, then train" },
    { "tune", cli_tune, "CONFIG", false, true,
      "measure the arrangements of a step that are expected to be fastest; train takes the best for what is on auto" },
    { "status", cli_status, "RUN [RUN ...]", false, true,
      "tell how a run is doing: its checkpoint.path, or a folder with several" },
    { "eval", cli_eval, "CONFIG", false, false, "compute loss and accuracy on the validation data" },
    { "generate", cli_generate, "CONFIG", false, false, "write text with a trained language model" },
    { "merge", cli_merge, "BASE ADAPTER", false, false,
      "write a model's folder with a PEFT adapter added to its weights" },
    { "tokenize", cli_tokenize, "FOLDER TEXT ...", false, false,
      "turn texts into a file of token ids; without --out print ids and tokens" },
    { "export", cli_export, "CHECKPOINT", false, false, "write the weights of a checkpoint as safetensors" },
    { "inspect", cli_inspect, "PATH", false, true,
      "list what a safetensors file, a folder of a model, a checkpoint or a folder of checkpoints contains" },
    { "compare", cli_compare, "CONFIG [CONFIG ...]", false, true,
      "run configurations in turn: speed, memory, traffic, losses, the same bits or not; one alone: beside itself "
      "without ZeRO "
      "and offloading" },
    { "report", cli_report_run, "RUN", false, false,
      "make an HTML page of a run from its folder: result, curves, the timeline and the memory of a step" },
    { "verify", cli_verify, "PATH", false, true, "check every byte of a file or checkpoint against its checksums" },
    { "devices", cli_devices, "FOLDER [FOLDER ...]", true, true,
      "list CPU, memory, GPUs and what is built in; with --measure also how fast they are, or the disks of FOLDERs" },
    { "doctor", cli_doctor, "FOLDER", true, true,
      "check what this machine has for training, what it lacks, and how to get it" },
    { "config", cli_config, "CONFIG", true, true,
      "print the effective configuration; without CONFIG every key there is" },
};
const size_t cli_command_count = sizeof cli_commands / sizeof cli_commands[0];

const cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; i < cli_command_count; i++)
        if (strcmp(cli_commands[i].name, name) == 0) return &cli_commands[i];
    return NULL;
}

int cli_unknown_command(const char *name)
{
    const char *nearest = cli_nearest(name, &cli_commands[0].name, cli_command_count, sizeof cli_commands[0]);
    if (nearest == NULL) return cli_usage("unknown command \"%s\"; see sluice --help", name);
    return cli_usage("unknown command \"%s\"; did you mean \"%s\"?", name, nearest);
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    cli_arguments arguments;
    int status = 2;
    if (!cli_parse(command, argc, argv, &arguments)) return status;
    if (arguments.help) {
        cli_print_help(command, stdout);
        status = 0;
    } else if (!command->on_ranks && cli_launched_ranks() > 1) {
        status = cli_usage(
            "started by a launcher as one of %d ranks, but only train runs on several: start it without the launcher",
            cli_launched_ranks());
    } else {
        status = command->run(&arguments);
    }
    free(arguments.sets);
    return status;
}

/* What the commands need of the stack, with room to spare, and what is asked for where there may be more. */
#define LEAST_STACK ((rlim_t)512 << 10)
#define USUAL_STACK ((rlim_t)8 << 20)

/* The stack of this thread grows up to the limit of the moment, so a smaller one is raised. False, after a message: it must not be. */
static bool has_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= USUAL_STACK)
        return true;
    limit.rlim_cur = limit.rlim_max != RLIM_INFINITY && limit.rlim_max < USUAL_STACK ? limit.rlim_max : USUAL_STACK;
    setrlimit(RLIMIT_STACK, &limit);
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= LEAST_STACK) return true;
    fprintf(stderr, "sluice: the stack may have %llu KiB, and %llu are needed; raise the limit: ulimit -s 8192\n",
            (unsigned long long)limit.rlim_cur >> 10, (unsigned long long)LEAST_STACK >> 10);
    return false;
}

int main(int argc, char **argv)
{
    if (!has_stack()) return 1;
    cli_ignore_write_signals();
    if (argc < 2) {
        cli_print_usage(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return cli_finish_output(cli_help(argc - 2, argv + 2));
    if (strcmp(name, "--version") == 0) {
        printf("sluice %s\n", sluice_version());
        return cli_finish_output(0);
    }
    const cli_command *command = cli_find_command(name);
    if (command == NULL) return cli_unknown_command(name);
    return cli_finish_output(run_command(command, argc - 1, argv + 1));
}
