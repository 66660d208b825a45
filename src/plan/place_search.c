/* place_search.c: the search for a placement on one rank.
 *
 * Candidates are judged by building them, which gives exact peaks and a predicted time (place_verdict.c). The order of
 * preference is
 *
 *     1. everything resident;
 *     2. recomputation alone, in as few layers as fit, or in groups of all layers (group.c), with what is cheap of the
 *        others or without: the device needs no other memory; unless the third is clearly faster;
 *     3. any mix of savings: from a start upward, always the saving that frees the most bytes per second lost, then
 *        what turned out to be superfluous is taken back; the best of several starts.
 *
 * Climbing judges a saving anew only where it would be taken, and only such as can free what is lacking: those of the disk where
 * the host is over its budget.
 *
 * A mix is then made faster where it can be: a little more of one saving in exchange for as much less of another as
 * still fits, as long as that shortens the predicted step and the number of trials lasts.
 *
 * Where a placement is known for nearly the same options (s->near), climbing and exchanges begin there, and nowhere else.
 *
 * An example: Llama 3.2B with 8 sequences of 2,048 tokens, 40 GiB of an H200, updates that wait for the norm. Below, a
 * candidate is written as its layers (recompute, groups, offload, host state, host parameters, cheap); a row of climbing is
 * what was taken, with the excess and the predicted step after it.
 *
 *     resident         ( 0 0 0  0 0  0)  0.602 s, 37.5 GiB over budget
 *     recompute alone  (29 0 0  0 0  0)  0.728 s,  5.4 GiB over: does not fit, nor with what is cheap before, so it must
 *                                        be a mix
 *     START_EMPTY      ( 0 0 0  0 8  0)  0.599 s, 30.0 GiB: the host's updates run beside backward; four layers more
 *                                        would cost 73 ms
 *                      ( 0 0 0  0 8 29)  0.611 s, 18.0 GiB: what is cheap, all at once
 *                      ( 0 0 4  0 8 29)  0.617 s, 15.1 GiB: the link is idle in forward
 *                      (16 0 4  0 8 29)  0.678 s,  1.5 GiB: recomputation, four layers at a time
 *                      (20 0 4  0 8 29)  0.701 s, fits
 *                      (18 0 4  0 8  7)  0.689 s after taking back what is superfluous: seven layers are kept
 *     START_RECOMPUTE  (27 0 0  6 0  0)  0.716 s
 *     ..._OFFLOAD      (26 0 0  7 0  0)  0.711 s
 *     START_HOST_STATE ( 0 0 0 29 0 27)  1.055 s, and START_OWN_PARAMETERS the same
 *     improve          (17 1 5  0 8  6)  0.684 s from the first: one layer more is offloaded, one less recomputed
 *                      (19 0 4  8 0 29)  0.693 s from the third, and 0.703 from the second
 *
 * The best of these is the placement. */
#include <math.h>
#include <string.h>

#include "plan/place.h"

#define TRIALS             360 /* about as many as it takes to find a placement of a deep model at all */
#define DISK_TRIALS        900 /* with something on the disk: most exchanges then have a third part */
#define FEW_TRIALS         72  /* for plans of very many steps */
#define NEAR_TRIALS        120 /* from what was found with nearly the same options */
#define SPECULATING_TRIALS 180 /* beside which it is tried how many layers may speculate */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* ---- until it fits ---- */

int sl_search_stride(const sl_search *s, int saving)
{
    int all = s->high.layers[saving];
    if (saving == SL_SAVING_GROUPS) return SL_GROUP_STEPS / 4;
    if (saving == SL_SAVING_CHEAP) return all > 0 ? all : 1; /* nothing else frees as much for its price */
    return all <= 16 ? 1 : (all + 7) / 8;
}

/* False: the saving is at its end. Sums of gradients go to the host where the state is, and that follows parameters; what
 * goes on to the disk has left the device. Only recomputed layers form groups. */
static bool take_more(const sl_search *s, sl_candidate *c, int saving)
{
    int *layers = c->layers, top = s->high.layers[saving];
    int state = layers[SL_SAVING_HOST_STATE], parameters = layers[SL_SAVING_HOST_PARAMETERS];
    const int away = state > parameters ? state : parameters;
    if (saving == SL_SAVING_HOST_GRADIENTS) top = smaller(top, away);
    if (saving == SL_SAVING_DISK_STATE || saving == SL_SAVING_DISK_GRADIENTS) top = smaller(top, away);
    if (saving == SL_SAVING_DISK_PARAMETERS) top = smaller(top, parameters);
    if (saving == SL_SAVING_DISK_ACTIVATIONS) top = smaller(top, layers[SL_SAVING_OFFLOAD]);
    if (saving == SL_SAVING_GROUPS && layers[SL_SAVING_RECOMPUTE] < 2) return false;
    if (saving == SL_SAVING_CHEAP) top -= layers[SL_SAVING_RECOMPUTE] + layers[SL_SAVING_OFFLOAD]; /* of the others */
    if (layers[saving] >= top) return false;
    layers[saving] = smaller(layers[saving] + sl_search_stride(s, saving), top);
    return true;
}

/* Lowers a saving of *c as far as the plan still fits: by halving, since less of a saving never needs less memory.
 * *trials is how many candidates may still be tried; NULL: as many as it takes. */
static sluice_status lower(sl_search *s, sl_candidate *c, int saving, int *trials)
{
    sl_candidate middle = *c;
    int too_few = s->low.layers[saving] - 1, enough = c->layers[saving];
    while (enough - too_few > 1 && (trials == NULL || (*trials)-- > 0)) {
        bool fits;
        int at = middle.layers[saving] = too_few + (enough - too_few) / 2;
        SL_TRY(sl_search_fits(s, &middle, &fits));
        if (fits)
            enough = at;
        else
            too_few = at;
    }
    c->layers[saving] = enough;
    return SLUICE_OK;
}

/* What more of a saving was worth when it was judged last. */
typedef struct offer {
    bool known, fresh; /* fresh: judged at the candidate at hand; otherwise at an earlier one */
    double score;      /* bytes freed for a second lost; -1: it frees nothing */
    double loss;       /* seconds */
} offer;

/* Whether more of a saving can free bytes of a tier that lacks some. Recomputed layers send less to the host. */
static bool may_help(const sl_verdict *now, int saving)
{
    const bool device = (now->over >> SL_TIER_DEVICE & 1) != 0, host = (now->over >> SL_TIER_HOST & 1) != 0;
    if (saving == SL_SAVING_RECOMPUTE || saving == SL_SAVING_GROUPS || saving == SL_SAVING_CHEAP) return device || host;
    return saving >= SL_SAVING_DISK_STATE ? host : device;
}

static sluice_status make_offer(sl_search *s, const sl_candidate *c, const sl_verdict *now, int saving, offer *out)
{
    sl_candidate next = *c;
    sl_verdict then;
    *out = (offer){ .known = false };
    if (!take_more(s, &next, saving)) return SLUICE_OK;
    SL_TRY(sl_search_judge(s, &next, &then));
    double loss = then.seconds - now->seconds;
    if (loss < 1e-9) loss = 1e-9;
    double score = then.excess < now->excess ? (double)(now->excess - then.excess) / loss : -1;
    *out = (offer){ .known = true, .fresh = true, .score = score, .loss = loss };
    return SLUICE_OK;
}

/* The saving that frees most for its price; -1: none that was judged frees anything. What an earlier candidate was offered is
 * judged again where it would be taken: as a rule a saving is worth less the more others have been taken. */
static sluice_status best_offer(sl_search *s, const sl_candidate *c, const sl_verdict *now, offer *offers, int *best)
{
    do {
        *best = -1;
        for (int k = 0; k < SL_SAVING_COUNT; k++)
            if (offers[k].known && offers[k].score > (*best < 0 ? -1 : offers[*best].score)) *best = k;
        if (*best < 0 || offers[*best].fresh) return SLUICE_OK;
        SL_TRY(make_offer(s, c, now, *best, &offers[*best]));
    } while (true);
}

/* Takes more of the saving of *c that frees most for its price; where none frees anything, of the cheapest, because
 * what frees nothing alone may do so together with others. *taken is false when every saving is at its end. *now is the
 * verdict on *c, before and after. */
static sluice_status take_best(sl_search *s, sl_candidate *c, sl_verdict *now, offer *offers, bool *taken)
{
    int best = -1, cheapest = -1;
    for (int k = 0; k < SL_SAVING_COUNT; k++) {
        if (!may_help(now, k))
            offers[k].known = false;
        else if (!offers[k].known || offers[k].score < 0)
            SL_TRY(make_offer(s, c, now, k, &offers[k]));
    }
    SL_TRY(best_offer(s, c, now, offers, &best));
    for (int k = 0; best < 0 && k < SL_SAVING_COUNT; k++) {
        if (!offers[k].fresh) SL_TRY(make_offer(s, c, now, k, &offers[k]));
        if (offers[k].known && (cheapest < 0 || offers[k].loss < offers[cheapest].loss)) cheapest = k;
    }
    if (best < 0) SL_TRY(best_offer(s, c, now, offers, &best)); /* of all */
    if (best < 0) best = cheapest;
    *taken = best >= 0;
    if (!*taken) return SLUICE_OK;
    take_more(s, c, best);
    for (int k = 0; k < SL_SAVING_COUNT; k++) offers[k].fresh = false;
    offers[best].known = false;
    return sl_search_judge(s, c, now);
}

/* Takes back, layer by layer, what the final mix does not need; in deep models by halving. */
static sluice_status take_back(sl_search *s, sl_candidate *c)
{
    for (int k = 0; k < SL_SAVING_COUNT; k++) {
        bool fits = true;
        if (sl_search_stride(s, k) > 1) SL_TRY(lower(s, c, k, NULL));
        while (sl_search_stride(s, k) == 1 && fits && c->layers[k] > s->low.layers[k]) {
            sl_candidate less = *c;
            less.layers[k]--;
            SL_TRY(sl_search_fits(s, &less, &fits));
            if (fits) *c = less;
        }
    }
    return SLUICE_OK;
}

/* From *c on until it fits. The last resort is every saving, and no prefetching, which needs room for two levels. */
static sluice_status climb(sl_search *s, sl_candidate *c, bool *fits)
{
    offer offers[SL_SAVING_COUNT] = { { .known = false } };
    bool taken = true;
    sl_verdict now;
    SL_TRY(sl_search_judge(s, c, &now));
    while (taken && !now.fits) SL_TRY(take_best(s, c, &now, offers, &taken));
    if (!now.fits && s->p->options.prefetch < 0) {
        *c = s->high;
        c->prefetch = 0;
        SL_TRY(sl_search_judge(s, c, &now));
    }
    *fits = now.fits;
    return *fits ? take_back(s, c) : SLUICE_OK;
}

/* ---- exchange of savings ---- */

/* As many layers on speculation as there is room for, by halving. */
static sluice_status speculate_most(sl_search *s, sl_candidate *c)
{
    int enough = 0, too_many = sl_search_most_speculating(s, c) + 1;
    while (too_many - enough > 1) {
        bool fits;
        c->speculating = enough + (too_many - enough) / 2;
        SL_TRY(sl_search_fits(s, c, &fits));
        if (fits)
            enough = c->speculating;
        else
            too_many = c->speculating;
    }
    c->speculating = enough;
    return SLUICE_OK;
}

/* `by` layers more of one saving, as many less of another as fits; *seconds and *best change where that is faster. */
static sluice_status exchange(sl_search *s, sl_candidate from, int more, int by, int less, sl_candidate *best,
                              double *seconds)
{
    int before = from.layers[less];
    bool fits;
    sl_verdict v;
    if (from.layers[more] >= s->high.layers[more]) return SLUICE_OK;
    from.layers[more] = smaller(from.layers[more] + by, s->high.layers[more]);
    if (s->speculates) from.speculating = 0;
    s->trials--;
    SL_TRY(sl_search_fits(s, &from, &fits));
    if (!fits) return SLUICE_OK;
    SL_TRY(lower(s, &from, less, &s->trials));
    if (from.layers[less] == before) return SLUICE_OK; /* it bought nothing */
    if (less != SL_SAVING_DISK_STATE && from.layers[SL_SAVING_DISK_STATE] > s->low.layers[SL_SAVING_DISK_STATE])
        SL_TRY(lower(s, &from, SL_SAVING_DISK_STATE, &s->trials)); /* room that it made on the host */
    if (s->speculates) SL_TRY(speculate_most(s, &from));
    SL_TRY(sl_search_judge(s, &from, &v));
    if (v.seconds >= *seconds * 0.999) return SLUICE_OK;
    *seconds = v.seconds;
    *best = from;
    return SLUICE_OK;
}

static int trials_for(const sl_search *s)
{
    const int most = sl_uses_disk(&s->p->placement) && !s->p->options.brief ? DISK_TRIALS : TRIALS;
    int64_t trials = (int64_t)most * SL_QUICK_STEPS / (s->p->step_count + 1);
    return trials > most ? most : trials < FEW_TRIALS ? FEW_TRIALS : (int)trials;
}

/* The best of all single exchanges, again and again, with at most so many trials. *seconds: of a step with what was found. */
static sluice_status improve(sl_search *s, sl_candidate *c, int most, double *seconds)
{
    sl_candidate best = *c;
    sl_verdict v;
    SL_TRY(sl_search_judge(s, c, &v));
    double before;
    *seconds = v.seconds;
    s->trials = smaller(trials_for(s), most);
    do {
        sl_candidate from = best;
        before = *seconds;
        for (int more = 0; more < SL_SAVING_COUNT; more++)
            for (int less = 0; less < SL_SAVING_COUNT && s->trials > 0; less++) {
                if (more == less) continue;
                if (from.layers[less] <= s->low.layers[less]) continue; /* no trial */
                SL_TRY(exchange(s, from, more, 1, less, &best, seconds));
                if (sl_search_stride(s, more) > 1)
                    SL_TRY(exchange(s, from, more, sl_search_stride(s, more), less, &best, seconds));
            }
    } while (*seconds < before && s->trials > 0);
    *c = best;
    return SLUICE_OK;
}

/* ---- several starts ---- */

/* Where climbing begins. Each saving is judged by what it frees when it is taken, so the start decides which
 * placements are met at all. Offloaded activations need room on the device while they leave and come back: what is
 * tight may not fit with them although it does without. */
typedef enum {
    START_EMPTY,             /* no saving, all permitted */
    START_RECOMPUTE,         /* every layer recomputed, activations not offloaded */
    START_RECOMPUTE_OFFLOAD, /* every layer recomputed, all savings permitted */
    START_HOST_STATE,        /* all optimizer state on the host, all savings permitted */
    START_OWN_PARAMETERS,    /* the same, parameters not on the host */
    START_COUNT
} start;

/* *seconds: of a step, INFINITY where nothing that fits was found. */
static sluice_status search_from(sl_search *s, start from, sl_candidate *found, double *seconds)
{
    const sl_candidate low = s->low, high = s->high;
    const int grown = from >= START_HOST_STATE ? SL_SAVING_HOST_STATE : SL_SAVING_RECOMPUTE;
    bool fits = false;
    *found = low;
    *seconds = INFINITY;
    if (from != START_EMPTY) found->layers[grown] = high.layers[grown];
    if (from != START_EMPTY && memcmp(found, &low, sizeof low) == 0) return SLUICE_OK; /* the same as START_EMPTY */
    if (from == START_RECOMPUTE) {
        s->low.layers[SL_SAVING_RECOMPUTE] = high.layers[SL_SAVING_RECOMPUTE];
        s->high.layers[SL_SAVING_OFFLOAD] = low.layers[SL_SAVING_OFFLOAD];
    }
    if (from == START_OWN_PARAMETERS) s->high.layers[SL_SAVING_HOST_PARAMETERS] = low.layers[SL_SAVING_HOST_PARAMETERS];
    sluice_status st = climb(s, found, &fits);
    s->low = low;
    s->high = high;
    if (st == SLUICE_OK && fits && from == START_RECOMPUTE) st = take_back(s, found); /* with the real bounds */
    if (st != SLUICE_OK || !fits) return st;
    sl_verdict v;
    SL_TRY(sl_search_judge(s, found, &v));
    *seconds = v.seconds;
    return SLUICE_OK;
}

/* One of many that are asked about does without the starts from which climbing is longest, where another takes their place. */
static bool is_left_out(const sl_search *s, start k)
{
    const int recompute = SL_SAVING_RECOMPUTE;
    return s->p->options.brief && (k == START_EMPTY || k == START_HOST_STATE) &&
           s->high.layers[recompute] > s->low.layers[recompute];
}

/* The fastest mix: every start is tried, and the best ones are improved. *fastest: seconds of a step; INFINITY: none
 * fits. */
static sluice_status find_mix(sl_search *s, sl_candidate *found, double *fastest)
{
    sl_candidate c[START_COUNT];
    double seconds[START_COUNT], improved;
    *fastest = INFINITY;
    s->end_count = 0;
    for (int k = 0; k < START_COUNT; k++) {
        seconds[k] = INFINITY;
        if (!is_left_out(s, (start)k)) SL_TRY(search_from(s, (start)k, &c[k], &seconds[k]));
    }
    const bool one = s->p->options.brief || s->p->step_count > SL_QUICK_STEPS;
    for (int i = 0; i < (one ? 1 : SL_IMPROVED); i++) {
        int best = 0;
        for (int k = 1; k < START_COUNT; k++)
            if (seconds[k] < seconds[best]) best = k;
        if (isinf(seconds[best])) break;
        seconds[best] = INFINITY; /* improved once */
        SL_TRY(improve(s, &c[best], DISK_TRIALS, &improved));
        s->ends[s->end_count++] = c[best];
        if (improved >= *fastest) continue;
        *fastest = improved;
        *found = c[best];
    }
    return SLUICE_OK;
}

/* Recomputation moves nothing and needs no other memory: a mix must be faster than this to be worth it. */
#define WORTH_A_MIX 0.98

/* As few layers as fit, or groups of all; with `cheap`, first what costs little of the others. v->fits: there is such a
 * placement. */
static sluice_status recompute_alone(sl_search *s, bool cheap, sl_candidate *found, sl_verdict *v)
{
    static const int savings[] = { SL_SAVING_CHEAP, SL_SAVING_RECOMPUTE, SL_SAVING_GROUPS };
    *found = s->low;
    SL_TRY(sl_search_judge(s, found, v));
    for (size_t k = cheap ? 0 : 1; k < sizeof savings / sizeof savings[0]; k++)
        while (!v->fits && take_more(s, found, savings[k])) SL_TRY(sl_search_judge(s, found, v));
    if (!v->fits || !cheap) return SLUICE_OK;
    SL_TRY(take_back(s, found));
    return sl_search_judge(s, found, v);
}

static sluice_status search_in(sl_search *s, sl_candidate *found, bool *fits)
{
    sl_candidate recomputed, other;
    sl_verdict v, w;
    double mixed;
    *found = s->low;
    s->end_count = 0;
    SL_TRY(sl_search_judge(s, found, &v));
    *fits = v.fits;
    if (*fits) return SLUICE_OK;
    SL_TRY(recompute_alone(s, false, &recomputed, &v));
    SL_TRY(recompute_alone(s, true, &other, &w));
    if (w.fits && (!v.fits || w.seconds < v.seconds)) recomputed = other, v = w;
    SL_TRY(find_mix(s, found, &mixed));
    *fits = !isinf(mixed);
    if (!v.fits || (*fits && mixed < WORTH_A_MIX * v.seconds)) return SLUICE_OK;
    *found = recomputed;
    *fits = true;
    return SLUICE_OK;
}

/* From s->near, with its savings as far as they are permitted here. */
static sluice_status search_near(sl_search *s, sl_candidate *found, bool *fits)
{
    sl_verdict v;
    double seconds;
    *found = s->low;
    s->end_count = 0;
    SL_TRY(sl_search_judge(s, found, &v));
    *fits = v.fits;
    if (*fits) return SLUICE_OK;
    for (int k = 0; k < SL_SAVING_COUNT; k++) {
        const int layers = s->near->layers[k];
        if (layers > s->low.layers[k]) found->layers[k] = smaller(layers, s->high.layers[k]);
    }
    SL_TRY(climb(s, found, fits));
    return *fits && !s->as_near ? improve(s, found, NEAR_TRIALS, &seconds) : SLUICE_OK;
}

bool sl_uses_disk(const sl_candidate *c)
{
    for (int k = SL_SAVING_DISK_STATE; k <= SL_SAVING_DISK_ACTIVATIONS; k++)
        if (c->layers[k] > 0) return true;
    return false;
}

/* Whether device and host together hold what any placement keeps that has nothing on the disk. */
static sluice_status may_do_without_disk(sl_search *s, bool *may)
{
    const uint64_t *budget = s->p->options.budget;
    uint64_t kept;
    SL_TRY(sl_search_floor(s, &kept));
    *may = kept <= budget[SL_TIER_DEVICE] + budget[SL_TIER_HOST];
    return SLUICE_OK;
}

/* The disk takes what the host cannot hold, and nothing else: first without what the settings leave open of it. */
static sluice_status search(sl_search *s, sl_candidate *found, bool *fits)
{
    sluice_status (*const in)(sl_search *, sl_candidate *, bool *) = s->near != NULL ? search_near : search_in;
    const sl_candidate high = s->high;
    bool may = true;
    for (int k = SL_SAVING_DISK_STATE; k <= SL_SAVING_DISK_ACTIVATIONS; k++) s->high.layers[k] = s->low.layers[k];
    const bool open = memcmp(&high, &s->high, sizeof high) != 0;
    sluice_status st = open && !sl_uses_disk(&s->low) ? may_do_without_disk(s, &may) : SLUICE_OK;
    may = may && (s->near == NULL || !open || !sl_uses_disk(s->near));
    *fits = false;
    if (st == SLUICE_OK && may) st = in(s, found, fits);
    s->high = high;
    return st != SLUICE_OK || *fits || !open ? st : in(s, found, fits);
}

sluice_status sl_search_improve(sl_search *s, sl_candidate *c)
{
    double seconds;
    return improve(s, c, SPECULATING_TRIALS, &seconds);
}

sluice_status sl_search_rank(sl_search *s, sl_candidate *found, bool *fits)
{
    sl_verdicts_forget(&s->judged);
    sluice_status st = search(s, found, fits);
    sl_verdicts_forget(&s->judged);
    SL_TRY(st);
    return *fits ? sl_search_settle(s, found) : SLUICE_OK;
}
