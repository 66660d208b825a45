/* events.c: events of a run as JSON, one object a line. */
#include <stdlib.h>

#include "cli/cli.h"

#define PHASE_SECONDS 1.0

/* A phase is written once a second while it goes on, and when it is over. */
static bool is_due(cli_events *e, const sluice_event *event)
{
    if (event->kind != SLUICE_EVENT_PHASE) return true;
    bool due = event->over || event->seconds >= e->phase_told + PHASE_SECONDS;
    if (due) e->phase_told = event->over ? 0 : event->seconds;
    return due;
}

/* The line's memory is kept from event to event: a step allocates nothing. */
void cli_event_json(cli_events *e, const sluice_event *event)
{
    if (!is_due(e, event)) return;
    size_t bytes = sluice_event_json(event, e->line, e->room);
    if (bytes == 0) return; /* from a newer library */
    if (bytes >= e->room) {
        char *larger = realloc(e->line, 2 * bytes);
        if (larger == NULL) return;
        e->line = larger;
        e->room = 2 * bytes;
        sluice_event_json(event, e->line, e->room);
    }
    fputs(e->line, e->out);
    fputc('\n', e->out);
    fflush(e->out);
}

void cli_events_free(cli_events *e)
{
    free(e->line);
}
