/* Checkpoints of several ranks: what N save, M load byte for byte, however either is cut; and whatever fails on one
 * rank fails on all of them, with its message, and leaves the last checkpoint as it was. */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "checkpoint/rounds.h"
#include "core/alloc.h"
#include "format/safetensors.h"
#include "support/checkpoint_fixture.h"
#include "test.h"

/* What the ranks are to do; they see a copy of it. */
typedef struct job {
    char folder[4096], file[4200];
    int64_t rows;
    fixture_cut c;
    bool whole, slivers;
    uint64_t step; /* to save, or to be found */
    int victim;    /* the rank that something happens to */
    int error;
    char weights[65], state[65];
} job;

static sluice_status on_ranks(int ranks, sluice_status (*body)(void *job, sluice_world *world), job *j)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 30;
    return sluice_launch(&o, body, j);
}

static job make_job(int64_t rows)
{
    job j = { .rows = rows, .whole = true };
    snprintf(j.folder, sizeof j.folder, "%s", test_memory_path());
    snprintf(j.file, sizeof j.file, "%s.safetensors", j.folder);
    return j;
}

/* Inside a rank: what a CHECK is in a test. */
#define EXPECT(cond_)                                                                                                  \
    do {                                                                                                               \
        if (!(cond_)) return sl_fail(SLUICE_ERR_FAILED, "line %d: %s (%s)", __LINE__, #cond_, sluice_error());         \
    } while (0)

static sluice_status save_job(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    SL_TRY(fixture_save(&f, j->folder, j->step));
    fixture_free(&f);
    return SLUICE_OK;
}

/* A rank that owns nothing has no values that could tell the step: then only what it was told counts. */
static sluice_status load_job(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    sl_checkpoint_meta meta, expected = fixture_meta(j->step);
    bool found;
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    fixture_fill(&f, 99);
    SL_TRY(sl_state_load(&f.state, j->folder, fixture_identity(), false, NULL, &meta, &found));
    EXPECT(found && memcmp(&meta, &expected, sizeof meta) == 0);
    int64_t step = fixture_step(&f);
    EXPECT(step == (int64_t)j->step || (step == -1 && !j->whole && j->c == CUT_LAST_OWNS_ALL));
    if (step == -1) EXPECT(f.writes == 0);
    fixture_free(&f);
    return SLUICE_OK;
}

TEST(any_number_of_ranks_loads_what_any_number_saved)
{
    for (int n = 1; n <= 4; n++)
        for (int c = 0; c < CUT_COUNT; c++) {
            job j = make_job(5);
            j.c = (fixture_cut)c;
            j.whole = n % 2 == 0;
            j.step = (uint64_t)(4 * n + c);
            REQUIRE_OK(on_ranks(n, save_job, &j));
            for (int m = 1; m <= 4; m++) {
                j.c = (fixture_cut)((c + m) % CUT_COUNT);
                j.whole = (n + m + c) % 2 == 0;
                REQUIRE_OK(on_ranks(m, load_job, &j));
            }
        }
}

TEST(files_of_several_chunks_are_loaded_by_other_numbers_of_ranks)
{
    job j = make_job(30000); /* three files of 5 MB */
    j.c = CUT_BLOCKS;
    j.step = 3;
    REQUIRE_OK(on_ranks(3, save_job, &j));
    j.c = CUT_UNEVEN;
    j.whole = false;
    REQUIRE_OK(on_ranks(2, load_job, &j));
}

/* ---- staying in touch ---- */

/* A second rank that says "not yet" three times. */
static int meetings;

static int other_size(const sl_comm *c)
{
    (void)c;
    return 2;
}

static sluice_status other_exchange(sl_comm *c, const char *what, const void *mine, size_t bytes, void *all)
{
    char not_done[64] = { SLUICE_OK };
    (void)c, (void)what;
    if (bytes > sizeof not_done) return sl_fail(SLUICE_ERR_FAILED, "ranks say more than this test expects");
    memcpy(all, mine, bytes);
    memcpy((char *)all + bytes, ++meetings > 3 ? mine : not_done, bytes);
    return SLUICE_OK;
}

static sluice_status count_work(void *user, bool *done)
{
    *done = ++*(int *)user == 5;
    return SLUICE_OK;
}

static sluice_status succeed(void *user)
{
    *(int *)user = 1;
    return SLUICE_OK;
}

/* However long one takes, the others hear of it between rounds, and none waits for an unbounded time. */
TEST(ranks_meet_until_the_slowest_is_done)
{
    const sl_comm_ops ops = { .size = other_size, .exchange = other_exchange };
    sl_comm comm = { &ops };
    int done = 0;
    meetings = 0;
    REQUIRE_OK(sl_rounds(&comm, "work", count_work, &done));
    CHECK(done == 5 && meetings >= 4);
    meetings = 0;
    REQUIRE_OK(sl_together(&comm, "work", succeed, &done));
    CHECK(done == 1 && meetings >= 4);
    meetings = 0;
    REQUIRE_OK(sl_together(&comm, "work", NULL, NULL));
    CHECK_EQ(meetings, 4);
}

/* ---- failures of one rank ---- */

/* The victim's number on every rank. */
static sluice_status tell(sluice_world *world, const job *j, int *number)
{
    return world->ops->broadcast(world, "test", j->victim, number, sizeof *number);
}

static sluice_status same_everywhere(sluice_world *world, int64_t mine)
{
    int64_t all[FIXTURE_RANKS] = { 0 };
    SL_TRY(world->ops->exchange(world, "test", &mine, sizeof mine, all));
    for (int r = 0; r < sluice_world_size(world); r++) EXPECT(all[r] == mine);
    return SLUICE_OK;
}

/* Saves twice; the second time the victim's nth call fails. *last is the newest checkpoint. */
static sluice_status save_and_fail(fixture *f, job *j, sluice_world *world, int n, int64_t *last, bool *more)
{
    countdown c = { .at = n, .error = j->error };
    bool victim = sluice_world_rank(world) == j->victim;
    char expected[64], tmp[4200];
    int64_t step;
    int warnings;
    snprintf(expected, sizeof expected, "on rank %d: ", j->victim);
    if (sluice_world_rank(world) == 0) SL_TRY(sl_checkpoint_clean(j->folder));
    SL_TRY(fixture_save(f, j->folder, (uint64_t)++ * last)); /* also removes what a failed save could not */
    if (victim) sl_io_set_hook(count_down, &c);
    sluice_status st = fixture_save(f, j->folder, (uint64_t)(*last + 1));
    sl_io_set_hook(NULL, NULL);
    SL_TRY(same_everywhere(world, st));
    EXPECT(st == SLUICE_OK || st == SLUICE_ERR_IO);
    if (st != SLUICE_OK) EXPECT(strstr(sluice_error(), expected) == sluice_error());
    if (st != SLUICE_OK) EXPECT(strstr(sluice_error(), "free space there") != NULL);
    SL_TRY(tell(world, j, &c.calls));
    *more = c.calls >= n;
    if (!*more) EXPECT(st == SLUICE_OK);
    SL_TRY(fixture_load(f, j->folder, &step, &warnings));
    EXPECT(warnings == 0 && (step == *last + 1 || (step == *last && st != SLUICE_OK)));
    snprintf(tmp, sizeof tmp, "%s/step-%d.tmp", j->folder, (int)*last + 1);
    if (sluice_world_rank(world) == 0) EXPECT(access(tmp, F_OK) != 0);
    *last = step;
    return SLUICE_OK;
}

static sluice_status fail_each_call(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    bool more = true;
    int64_t last = 1;
    int n = 1;
    fixture_make_rank(&f, j->rows, world, j->c, true);
    SL_TRY(fixture_save(&f, j->folder, 1));
    for (; more; n++) SL_TRY(save_and_fail(&f, j, world, n, &last, &more));
    EXPECT(n > (j->victim == 0 ? 30 : 4));
    fixture_free(&f);
    return SLUICE_OK;
}

TEST(a_call_that_fails_on_one_rank_fails_the_save_on_all)
{
    for (int victim = 0; victim < 3; victim++) {
        job j = make_job(5);
        j.victim = victim;
        j.error = ENOSPC;
        REQUIRE_OK(on_ranks(3, fail_each_call, &j));
    }
}

static sluice_status run_short_of_memory(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    int64_t step;
    int warnings, n = 1;
    fixture_make_rank(&f, j->rows, world, j->c, false);
    SL_TRY(fixture_save(&f, j->folder, 1));
    for (sluice_status st = SLUICE_ERR_NO_MEMORY; st != SLUICE_OK; n++) {
        sl_alloc_fail_nth(sluice_world_rank(world) == j->victim ? n : 0, 0);
        st = fixture_save(&f, j->folder, 2);
        sl_alloc_fail_nth(0, 0);
        EXPECT(st == SLUICE_OK || st == SLUICE_ERR_NO_MEMORY);
        SL_TRY(same_everywhere(world, st));
    }
    EXPECT(n > 5);
    n = 1;
    for (sluice_status st = SLUICE_ERR_NO_MEMORY; st != SLUICE_OK; n++) {
        sl_alloc_fail_nth(sluice_world_rank(world) == j->victim ? n : 0, 0);
        st = fixture_load(&f, j->folder, &step, &warnings);
        sl_alloc_fail_nth(0, 0);
        EXPECT(st == SLUICE_OK || st == SLUICE_ERR_NO_MEMORY);
        SL_TRY(same_everywhere(world, st));
    }
    EXPECT(n > 5 && step == 2);
    fixture_free(&f);
    return SLUICE_OK;
}

TEST(short_memory_of_one_rank_is_everyones_error)
{
    for (int victim = 0; victim < 2; victim++) {
        job j = make_job(5);
        j.victim = victim;
        REQUIRE_OK(on_ranks(2, run_short_of_memory, &j));
    }
}

static sluice_status be_killed_while_saving(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    countdown c = { .at = 3 }; /* after its file is there */
    fixture_make_rank(&f, j->rows, world, j->c, true);
    if (sluice_world_rank(world) == j->victim) sl_io_set_hook(count_down, &c);
    return fixture_save(&f, j->folder, j->step);
}

TEST(a_rank_that_dies_while_saving_leaves_the_last_checkpoint)
{
    for (int victim = 0; victim < 2; victim++) {
        job j = make_job(5);
        j.step = 1;
        REQUIRE_OK(on_ranks(2, save_job, &j));
        j.step = 2;
        j.victim = victim;
        CHECK_EQ(on_ranks(2, be_killed_while_saving, &j), SLUICE_ERR_RANK);
        j.step = 1;
        REQUIRE_OK(on_ranks(3, load_job, &j));
        REQUIRE_OK(sl_checkpoint_clean(j.folder));
    }
}

/* ---- damage ---- */

static sluice_status load_past_damage(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    int64_t step;
    int warnings;
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    SL_TRY(fixture_load(&f, j->folder, &step, &warnings));
    EXPECT(step == (int64_t)j->step);
    EXPECT(warnings == (sluice_world_rank(world) == 0)); /* one rank speaks for all */
    fixture_free(&f);
    return SLUICE_OK;
}

/* Which rank reads a chunk depends on its place: wherever the damage is, all ranks fall back. */
TEST(damage_that_one_rank_finds_makes_all_take_the_older_checkpoint)
{
    job j = make_job(20000); /* two files of two chunks */
    for (j.step = 1; j.step <= 2; j.step++) REQUIRE_OK(on_ranks(2, save_job, &j));
    j.step = 1;
    for (int file = 0; file < 2; file++)
        for (size_t chunk = 0; chunk < 2; chunk++) {
            char path[4200];
            snprintf(path, sizeof path, "%s/step-2/rank-%d.bin", j.folder, file);
            FILE *data = fopen(path, "r+b");
            REQUIRE(data != NULL);
            for (int undo = 0; undo < 2; undo++) {
                fseek(data, (long)(chunk * SL_CHECKPOINT_CHUNK + 5), SEEK_SET);
                int byte = fgetc(data);
                fseek(data, -1, SEEK_CUR);
                fputc(byte ^ 1, data);
                fflush(data);
                if (undo == 0) REQUIRE_OK(on_ranks(3, load_past_damage, &j));
            }
            fclose(data);
        }
    j.step = 2;
    REQUIRE_OK(on_ranks(3, load_job, &j));
}

static sluice_status expect_refusal(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    sl_checkpoint_meta meta;
    bool found;
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    if (sluice_world_rank(world) == j->victim) f.tensors[5].kind = "momentum";
    EXPECT(sl_state_load(&f.state, j->folder, NULL, false, NULL, &meta, &found) == SLUICE_ERR_INPUT);
    EXPECT(strstr(sluice_error(), "on rank 1: ") != NULL && strstr(sluice_error(), "is of another model") != NULL);
    EXPECT(f.writes == 0);
    fixture_free(&f);
    return SLUICE_OK;
}

TEST(a_checkpoint_that_one_rank_refuses_is_loaded_by_none)
{
    job j = make_job(5);
    j.step = 1;
    j.victim = 1;
    REQUIRE_OK(on_ranks(2, save_job, &j));
    REQUIRE_OK(on_ranks(2, expect_refusal, &j));
}

/* ---- weights, hashes, values ---- */

static sluice_status write_weights(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    char weights[65], state[65];
    sl_pool *pool;
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    fixture_fill(&f, j->step);
    SL_TRY(sl_pool_create(3, &pool));
    f.state.pool = pool; /* the file is read by several threads */
    SL_TRY(sl_state_weights_save(&f.state, j->file));
    SL_TRY(sl_state_sha256(&f.state, 0.5, weights, state));
    EXPECT(strcmp(weights, j->weights) == 0 && strcmp(state, j->state) == 0);
    fixture_fill(&f, 77);
    SL_TRY(sl_state_weights_load(&f.state, j->file));
    for (int i = 4; i < FIXTURE_TENSORS; i++) f.state.count--;
    fixture whole;
    fixture_make(&whole, j->rows);
    fixture_fill(&whole, j->step);
    for (int i = 0; i < f.state.count; i++) {
        float *values = malloc((f.tensors[i].elements + 1) * sizeof *values);
        SL_TRY(sl_state_read_all(&f.state, i, 0, f.tensors[i].elements, values));
        EXPECT(memcmp(values, whole.values[i], f.tensors[i].elements * sizeof *values) == 0);
        free(values);
    }
    float few[70];
    SL_TRY(sl_state_read_all(&f.state, 1, 13, 70, few));
    EXPECT(memcmp(few, whole.values[1] + 13, sizeof few) == 0);
    fixture_free(&whole);
    sl_pool_destroy(pool);
    fixture_free(&f);
    return SLUICE_OK;
}

TEST(weights_hashes_and_values_are_those_of_one_rank)
{
    fixture f;
    char alone[4200];
    size_t bytes, other_bytes;
    job j = make_job(20000); /* b has 5 MB: more than a chunk */
    j.step = 6;
    fixture_make(&f, j.rows);
    fixture_fill(&f, j.step);
    snprintf(alone, sizeof alone, "%s.alone", j.folder);
    REQUIRE_OK(sl_state_weights_save(&f.state, alone));
    REQUIRE_OK(sl_state_sha256(&f.state, 0.5, j.weights, j.state));
    char *data = read_bytes(alone, &bytes);
    for (int c = 0; c < CUT_COUNT; c++) {
        j.c = (fixture_cut)c;
        j.whole = c % 2 == 0;
        REQUIRE_OK(on_ranks(2 + c % 3, write_weights, &j));
        char *other = read_bytes(j.file, &other_bytes);
        CHECK(other_bytes == bytes && memcmp(data, other, bytes) == 0);
        free(other);
    }
    free(data);
    fixture_free(&f);
}

/* ---- hashes on many threads and ranks ---- */

/* Every rank keeps all; the owner changes every few elements, as with tiles of columns. */
enum { SLIVER = 100 };

static int64_t sliver_count(void *user, int64_t tensor, int rank)
{
    const fixture *f = user;
    int64_t slivers = ((int64_t)f->tensors[tensor].elements + SLIVER - 1) / SLIVER;
    return (slivers - rank + f->state.rank_count - 1) / f->state.rank_count;
}

static sl_range sliver(void *user, int64_t tensor, int rank, int64_t index)
{
    const fixture *f = user;
    int64_t first = (index * f->state.rank_count + rank) * SLIVER, left = (int64_t)f->tensors[tensor].elements - first;
    return (sl_range){ first, left < SLIVER ? left : SLIVER };
}

/* Of the range only what this rank owns; the rest of `out` would spoil a hash. */
static sluice_status read_slivers(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    const fixture *f = user;
    for (uint64_t i = first; i < first + count; i++)
        if ((int)(i / SLIVER % (uint64_t)f->state.rank_count) == f->state.rank) out[i - first] = f->values[tensor][i];
    return SLUICE_OK;
}

static sluice_status hash_on_threads(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    char weights[65], state[65];
    sl_pool *pool;
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    fixture_fill(&f, j->step);
    if (j->slivers) {
        f.state.owned_count = sliver_count;
        f.state.owned = sliver;
        f.state.read = read_slivers;
    }
    SL_TRY(sl_pool_create(3 + sluice_world_rank(world), &pool));
    f.state.pool = pool;
    SL_TRY(sl_state_sha256(&f.state, 0.5, weights, state));
    EXPECT(strcmp(weights, j->weights) == 0 && strcmp(state, j->state) == 0);
    sl_pool_destroy(pool);
    fixture_free(&f);
    return SLUICE_OK;
}

/* b has more elements than a rank hashes in one go, at odd places cut among the ranks. */
TEST(hashes_do_not_depend_on_threads_ranks_or_who_owns_what)
{
    fixture f;
    job j = make_job(140001);
    j.step = 6;
    fixture_make(&f, j.rows);
    fixture_fill(&f, j.step);
    REQUIRE_OK(sl_state_sha256(&f.state, 0.5, j.weights, j.state));
    for (int c = 0; c < CUT_COUNT; c++) {
        j.c = (fixture_cut)c;
        REQUIRE_OK(on_ranks(1 + c % 4, hash_on_threads, &j));
    }
    fixture_free(&f);
}

TEST(tensors_whose_owner_changes_all_the_time_have_the_same_hashes)
{
    fixture f;
    job j = make_job(500);
    j.whole = j.slivers = true;
    fixture_make(&f, j.rows);
    fixture_fill(&f, j.step);
    REQUIRE_OK(sl_state_sha256(&f.state, 0.5, j.weights, j.state));
    REQUIRE_OK(on_ranks(2, hash_on_threads, &j));
    REQUIRE_OK(on_ranks(3, hash_on_threads, &j));
    fixture_free(&f);
}

static sluice_status cannot_read(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    (void)user, (void)tensor, (void)first, (void)count, (void)out;
    return sl_fail(SLUICE_ERR_FAILED, "this value is lost");
}

static sluice_status lose_values(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    char weights[65], state[65], path[4096];
    float values[6];
    sl_checkpoint_meta meta = fixture_meta(9);
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    if (sluice_world_rank(world) == j->victim) f.state.read = cannot_read;
    sluice_status results[] = { sl_state_weights_save(&f.state, j->file), sl_state_sha256(&f.state, 1, weights, state),
                                sl_state_read_all(&f.state, 0, 0, 6, values),
                                sl_state_save(&f.state, &meta, j->folder, 1, path) };
    for (int i = 0; i < 4; i++) EXPECT(results[i] == SLUICE_ERR_FAILED);
    EXPECT(strstr(sluice_error(), "this value is lost") != NULL);
    fixture_free(&f);
    return SLUICE_OK;
}

TEST(values_that_one_rank_cannot_read_fail_every_reader)
{
    for (int victim = 0; victim < 2; victim++) {
        job j = make_job(5);
        j.victim = victim;
        REQUIRE_OK(on_ranks(2, lose_values, &j));
        CHECK(access(j.file, F_OK) != 0);
    }
}

static sluice_status fail_weights(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    int harmless = 0; /* the lock of the file, which is in place then, loses its name and is closed */
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    for (int n = 1, more = 1; more; n++) {
        countdown c = { .at = n, .error = ENOSPC };
        if (sluice_world_rank(world) == 0) sl_io_set_hook(count_down, &c);
        sluice_status st = sl_state_weights_save(&f.state, j->file);
        sl_io_set_hook(NULL, NULL);
        SL_TRY(same_everywhere(world, st));
        SL_TRY(tell(world, j, &c.calls));
        more = c.calls >= n;
        harmless += more && st == SLUICE_OK;
        EXPECT(st == (more ? SLUICE_ERR_IO : SLUICE_OK) || (st == SLUICE_OK && harmless <= 3));
        if (!more) EXPECT(n > 5);
    }
    fixture_free(&f);
    return SLUICE_OK;
}

TEST(a_full_disk_under_the_weights_is_everyones_error)
{
    job j = make_job(5);
    REQUIRE_OK(on_ranks(3, fail_weights, &j));
}

/* ---- in the background ---- */

/* Holds the writer's data back until the caller has changed everything. */
static atomic_int gate; /* 0: closed */
static int gate_error;

static int hold_writes(void *user, const char *call, const char *path)
{
    (void)user;
    if (strcmp(call, "pwrite") != 0 || strstr(path, "rank-") == NULL) return 0;
    while (atomic_load(&gate) == 0) usleep(500);
    return gate_error;
}

static sluice_status save_behind(fixture *f, job *j)
{
    sl_checkpoint_meta meta = fixture_meta(j->step);
    sl_saving *s;
    char path[4096];
    fixture_fill(f, j->step);
    fixture_snapshot(f);
    atomic_store(&gate, 0);
    bool owns_something = f->run_count[1][f->state.rank] > 0;
    sl_io_set_hook(hold_writes, NULL);
    SL_TRY(sl_state_save_begin(&f->state, &meta, j->folder, 2, true, &s));
    bool early = owns_something && sl_saving_done(s);
    fixture_fill(f, j->step + 50); /* training goes on */
    atomic_store(&gate, 1);
    sluice_status st = sl_state_save_finish(s, path);
    sl_io_set_hook(NULL, NULL);
    EXPECT(!early);
    return st;
}

static sluice_status save_in_background(void *user, sluice_world *world)
{
    job *j = user;
    fixture f;
    fixture_make_rank(&f, j->rows, world, j->c, j->whole);
    gate_error = sluice_world_rank(world) == j->victim ? j->error : 0;
    sluice_status st = save_behind(&f, j);
    if (j->error == 0) SL_TRY(st);
    if (j->error != 0) EXPECT(st == SLUICE_ERR_IO && strstr(sluice_error(), "free space there") != NULL);
    fixture_free(&f);
    return SLUICE_OK;
}

TEST(a_save_in_the_background_is_of_the_moment_it_began)
{
    job j = make_job(20000);
    for (int ranks = 1; ranks <= 3; ranks++) {
        j.step = (uint64_t)ranks;
        j.c = (fixture_cut)(ranks % CUT_COUNT);
        REQUIRE_OK(on_ranks(ranks, save_in_background, &j));
        REQUIRE_OK(on_ranks(2, load_job, &j));
    }
}

TEST(a_full_disk_in_the_background_comes_out_at_the_end_on_all_ranks)
{
    job j = make_job(5);
    char tmp[4200];
    j.step = 1;
    REQUIRE_OK(on_ranks(1, save_job, &j));
    j.step = 2;
    j.victim = 1;
    j.error = ENOSPC;
    REQUIRE_OK(on_ranks(3, save_in_background, &j));
    snprintf(tmp, sizeof tmp, "%s/step-2.tmp", j.folder);
    CHECK(access(tmp, F_OK) != 0);
    j.step = 1;
    REQUIRE_OK(on_ranks(1, load_job, &j));
}
