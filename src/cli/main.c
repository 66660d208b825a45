/* main.c: the table of commands, and the way to one of them. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

const cli_command cli_commands[] = {
    { "plan", cli_plan, "CONFIG", false, "print memory, transfers and expected step time; runs nothing" },
    { "train", cli_train, "CONFIG", false, "plan, then train" },
    { "status", cli_status, "RUN [RUN ...]", false,
      "tell how a run is doing: its checkpoint.path, or a folder with several" },
    { "eval", cli_eval, "CONFIG", false, "compute loss and accuracy on the validation data" },
    { "generate", cli_generate, "CONFIG", false, "write text with a trained language model" },
    { "merge", cli_merge, "BASE ADAPTER", false, "write a model's folder with a PEFT adapter added to its weights" },
    { "tokenize", cli_tokenize, "FOLDER TEXT ...", false,
      "turn texts into a file of token ids; without --out print ids and tokens" },
    { "export", cli_export, "CHECKPOINT", false, "write the weights of a checkpoint as safetensors" },
    { "inspect", cli_inspect, "PATH", false,
      "list what a safetensors file, a folder of a model, a checkpoint or a folder of checkpoints contains" },
    { "report", cli_report_run, "RUN", false,
      "make an HTML page of a run from its folder: result, curves, the timeline and the memory of a step" },
    { "verify", cli_verify, "PATH", false, "check every byte of a file or checkpoint against its checksums" },
    { "devices", cli_devices, NULL, false,
      "list CPU, memory, GPUs and what is built in; with --measure also how fast they are" },
    { "config", cli_config, "CONFIG", true, "print the effective configuration; without CONFIG every key there is" },
};
const size_t cli_command_count = sizeof cli_commands / sizeof cli_commands[0];

static void print_usage(FILE *out)
{
    fputs("sluice trains neural networks larger than the memory of the device that computes them.\n\n"
          "usage: sluice COMMAND [OPTION ...]\n\n",
          out);
    for (size_t i = 0; i < cli_command_count; i++) {
        const cli_command *c = &cli_commands[i];
        char left[64];
        snprintf(left, sizeof left, "%s%s%s%s%s", c->name, c->operand != NULL ? " " : "",
                 c->operand_optional ? "[" : "", c->operand != NULL ? c->operand : "", c->operand_optional ? "]" : "");
        fprintf(out, "  %-24s %s\n", left, c->help);
    }
    fputs("\n  sluice help COMMAND      options of a command, as sluice COMMAND --help\n"
          "  sluice config            keys of a configuration file\n"
          "  sluice --version\n\n"
          "exit status:\n"
          "   0  success\n"
          "   1  any other failure\n"
          "   2  wrong command line or configuration\n"
          "   3  the model does not fit in memory\n"
          "   4  an input file is missing, malformed or of another model\n"
          "   5  a rank was lost\n"
          "   6  input/output error, also on standard output\n"
          "   7  a loss, gradient or weight is not finite\n"
          "  75  stopped by a signal, after saving a checkpoint where there was a step to save\n",
          out);
}

static const cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < cli_command_count; i++)
        if (strcmp(cli_commands[i].name, name) == 0) return &cli_commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *nearest = cli_nearest(name, &cli_commands[0].name, cli_command_count, sizeof cli_commands[0]);
    if (nearest == NULL) return cli_usage("unknown command \"%s\"; see sluice --help", name);
    return cli_usage("unknown command \"%s\"; did you mean \"%s\"?", name, nearest);
}

/* sluice help, sluice help COMMAND */
static int print_help(int argc, char **argv)
{
    if (argc == 0 || strcmp(argv[0], "help") == 0) {
        print_usage(stdout);
        return 0;
    }
    const cli_command *command = find_command(argv[0]);
    if (command == NULL) return unknown_command(argv[0]);
    if (argc > 1) return cli_usage("help: unexpected argument \"%s\"", argv[1]);
    cli_print_help(command, stdout);
    return 0;
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    cli_arguments arguments;
    int status = 2;
    if (!cli_parse(command, argc, argv, &arguments)) return status;
    if (arguments.help) {
        cli_print_help(command, stdout);
        status = 0;
    } else {
        status = command->run(&arguments);
    }
    free(arguments.sets);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return cli_finish_output(print_help(argc - 2, argv + 2));
    if (strcmp(name, "--version") == 0) {
        printf("sluice %s\n", sluice_version());
        return cli_finish_output(0);
    }
    const cli_command *command = find_command(name);
    if (command == NULL) return unknown_command(name);
    return cli_finish_output(run_command(command, argc - 1, argv + 1));
}
