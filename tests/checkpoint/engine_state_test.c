/* Checkpoints of a real executor: what one plan saved, another plan with other homes for everything, another number of
 * ranks and another stage loads byte for byte. */
#include "core/half.h"
#include "optim/optim.h"
#include "support/checkpoint_fixture.h"
#include "test.h"

/* A graph, its optimizer, a plan and an executor. */
typedef struct engine {
    sluice_graph *g;
    sl_optim *optim;
    sl_plan *plan;
    sl_comm *comm; /* of one rank's own; NULL in a world of several */
    sl_exec *x;
    sl_checkpoint_slots slots;
} engine;

static sluice_status build_graph(engine *e, sluice_dtype precision)
{
    SL_TRY(sluice_graph_create(&e->g));
    sluice_value x = sluice_input(e->g, "x", SLUICE_F32, 2, (int64_t[]){ 4, 30 });
    sluice_value target = sluice_input(e->g, "target", SLUICE_F32, 2, (int64_t[]){ 4, 7 });
    sluice_value frozen = sluice_parameter(e->g, "a.frozen", 1, (int64_t[]){ 30 }, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_freeze(e->g, frozen);
    sluice_layer(e->g, "one");
    x = sluice_relu(e->g, sluice_linear(e->g, sluice_multiply(e->g, x, frozen), 50, "z.first"));
    sluice_layer(e->g, "two");
    sluice_set_loss(e->g, sluice_mse(e->g, sluice_linear(e->g, x, 7, "b.second"), target));
    SL_TRY(sl_graph_finish(e->g));
    if (precision != SLUICE_F32) SL_TRY(sl_graph_lower(e->g, precision, precision));
    SL_TRY(sl_graph_differentiate(e->g));
    sl_optim_options o = { .clip = 1.0 };
    sluice_optimizer_init(&o.optimizer, SLUICE_ADAM);
    SL_TRY(sl_optim_create(e->g, &o, &e->optim));
    e->slots.count = sl_optim_slots(e->optim);
    for (int i = 0; i < e->slots.count; i++) e->slots.names[i] = sl_optim_slot_name(e->optim, i);
    return SLUICE_OK;
}

/* world NULL: alone. */
static sluice_status build_in(engine *e, sluice_world *world, sluice_dtype precision, sl_plan_options p)
{
    sl_machine machine;
    memset(e, 0, sizeof *e);
    SL_TRY(build_graph(e, precision));
    sl_machine_default(&machine);
    p.budget[SL_TIER_DEVICE] = p.budget[SL_TIER_HOST] = 64 << 20;
    p.rank = sluice_world_rank(world);
    p.rank_count = sluice_world_size(world);
    p.state_ratio = 1;
    p.accumulation = 1;
    p.prefetch = -1;
    p.training = true;
    p.state_slots = e->slots.count;
    p.update_bytes_per_element = sl_optim_bytes_per_element(e->optim, precision, precision, SL_FORM_F32);
    SL_TRY(sl_plan_create(e->g, &machine, &p, &e->plan));
    if (world == NULL) SL_TRY(sl_comm_self_open(&e->comm));
    sl_exec_options x = { .backend = &sl_cpu_backend,
                          .device = { .threads = 1, .isa = SL_ISA_SCALAR, .guard = true },
                          .comm = world != NULL ? world : e->comm };
    x.comm->ops->arena_files(x.comm, x.device.arena_files);
    return sl_exec_create(e->plan, &x, &e->x);
}

static sluice_status build_rank(engine *e, sluice_world *world, sl_plan_options p)
{
    return build_in(e, world, SLUICE_F32, p);
}

static sluice_status build(engine *e, sluice_place parameters, sluice_place state)
{
    return build_rank(e, NULL, (sl_plan_options){ .parameters = parameters, .state = state });
}

static void destroy(engine *e)
{
    sl_exec_destroy(e->x);
    if (e->comm != NULL) e->comm->ops->close(e->comm);
    sl_plan_destroy(e->plan);
    sl_optim_destroy(e->optim);
    sluice_graph_destroy(e->g);
}

/* Parameter `p`'s value (slot -1) or state at element i. `shift` tells one filling from another. */
static float value_of(int p, int slot, int64_t i, int shift)
{
    return (float)(p * 100 + slot * 10 + shift) + (float)(i % 251) / 256.0f;
}

static sluice_status fill(engine *e, int shift)
{
    static float values[4096];
    for (int p = 0; p < e->g->parameter_count; p++) {
        int64_t count = e->g->parameters[p].count;
        for (int slot = -1; slot < (e->g->parameters[p].trainable ? e->slots.count : 0); slot++) {
            for (int64_t i = 0; i < count; i++) values[i] = value_of(p, slot, i, shift);
            SL_TRY(sl_exec_store(e->x, p, slot, 0, count, values));
        }
    }
    return SLUICE_OK;
}

/* Elements that this rank owns and that differ from what fill wrote. */
static int64_t differences(engine *e, bool with_state, int shift)
{
    static float values[4096];
    int64_t wrong = 0;
    for (int p = 0; p < e->g->parameter_count; p++) {
        for (int slot = -1; slot < (with_state && e->g->parameters[p].trainable ? e->slots.count : 0); slot++) {
            if (sl_exec_fetch(e->x, p, slot, 0, e->g->parameters[p].count, values) != SLUICE_OK) return -1;
            for (int64_t k = 0; k < sl_plan_owned_count(e->plan, p, e->plan->options.rank); k++) {
                sl_range r = sl_plan_owned(e->plan, p, e->plan->options.rank, k);
                for (int64_t i = r.first; i < r.first + r.count; i++) wrong += values[i] != value_of(p, slot, i, shift);
            }
        }
    }
    return wrong;
}

/* The same over whatever copies of whole layers this rank keeps, whoever owns the elements. */
static int64_t copy_differences(engine *e, int shift)
{
    static float values[4096];
    int64_t wrong = 0;
    for (int p = 0; p < e->g->parameter_count; p++) {
        const sl_parameter *of = &e->g->parameters[p];
        const sl_layer_place *l = &e->plan->layers[of->layer];
        const int copies[] = { l->master, l->home, l->working };
        for (int c = 0; c < 3; c++) {
            if (copies[c] < 0 || e->plan->buffers[copies[c]].shard) continue;
            sl_piece piece = { copies[c], (uint64_t)of->offset * 4, (uint64_t)of->count * 4 };
            if (sl_exec_read(e->x, sl_plan_span(e->plan, piece), values) != SLUICE_OK) return -1;
            for (int64_t i = 0; i < of->count; i++) wrong += values[i] != value_of(p, -1, i, shift);
        }
    }
    return wrong;
}

TEST(a_checkpoint_does_not_depend_on_where_the_plan_kept_things)
{
    static const sluice_place places[] = { SLUICE_PLACE_DEVICE, SLUICE_PLACE_HOST };
    char folder[4096], path[4096], weights[2][65], state[2][65];
    sl_checkpoint_meta meta = fixture_meta(9), back;
    engine a, b;
    snprintf(folder, sizeof folder, "%.4000s/run", test_tmpdir());
    REQUIRE_OK(build(&a, SLUICE_PLACE_DEVICE, SLUICE_PLACE_DEVICE));
    REQUIRE_OK(fill(&a, 0));
    REQUIRE_OK(sl_checkpoint_save(a.x, &a.slots, &meta, folder, 1, path));
    REQUIRE_OK(sl_state_hash(a.x, &a.slots, 0.5, weights[0], state[0]));
    for (int i = 0; i < 4; i++) {
        REQUIRE_OK(build(&b, places[i / 2], places[i % 2]));
        CHECK(differences(&b, true, 0) != 0);
        REQUIRE_OK(sl_checkpoint_load(b.x, &b.slots, folder, fixture_identity(), NULL, &back));
        CHECK(memcmp(&meta, &back, sizeof meta) == 0);
        CHECK_EQ(differences(&b, true, 0), 0);
        REQUIRE_OK(sl_state_hash(b.x, &b.slots, 0.5, weights[1], state[1]));
        CHECK_STR(weights[1], weights[0]);
        CHECK_STR(state[1], state[0]);
        destroy(&b);
    }
    destroy(&a);
}

TEST(weights_load_from_a_checkpoint_and_from_safetensors)
{
    char folder[4096], file[4200], path[4096];
    sl_checkpoint_meta meta = fixture_meta(9);
    uint64_t step;
    engine a, b;
    snprintf(folder, sizeof folder, "%.4000s/run", test_tmpdir());
    snprintf(file, sizeof file, "%s/w.safetensors", folder);
    REQUIRE_OK(build(&a, SLUICE_PLACE_DEVICE, SLUICE_PLACE_DEVICE));
    REQUIRE_OK(sl_checkpoint_load_weights(a.x, folder, &step));
    CHECK_EQ(step, 0);
    REQUIRE_OK(fill(&a, 0));
    REQUIRE_OK(sl_checkpoint_save(a.x, &a.slots, &meta, folder, 1, path));
    REQUIRE_OK(sl_weights_save(a.x, file, SLUICE_F32));
    REQUIRE_OK(build(&b, SLUICE_PLACE_HOST, SLUICE_PLACE_HOST));
    REQUIRE_OK(sl_checkpoint_load_weights(b.x, folder, &step));
    CHECK_EQ(step, 9);
    CHECK_EQ(differences(&b, false, 0), 0);
    destroy(&b);
    REQUIRE_OK(build(&b, SLUICE_PLACE_HOST, SLUICE_PLACE_DEVICE));
    REQUIRE_OK(sl_weights_load(b.x, file));
    CHECK_EQ(differences(&b, false, 0), 0);
    sl_checkpoint_slots other = { 1, { "momentum" } };
    CHECK_EQ(sl_checkpoint_load(b.x, &other, folder, fixture_identity(), NULL, &meta), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "tensor \"b.second.bias\" (exp_avg) [7] is in the checkpoint but not in this run");
    destroy(&b);
    destroy(&a);
}

/* ---- weights that are bf16 ---- */

/* Bytes in which what two engines of one plan keep of a layer's weights differs. */
static int64_t byte_differences(engine *a, engine *b, int layer)
{
    static uint8_t bytes[2][1 << 15];
    const sl_layer_place *l = &a->plan->layers[layer];
    const int copies[] = { l->master, l->remainder, l->home };
    int64_t wrong = 0;
    for (int c = 0; c < 3; c++) {
        if (copies[c] < 0) continue;
        sl_piece piece = { copies[c], 0, a->plan->buffers[copies[c]].bytes };
        if (piece.bytes > sizeof bytes[0]) return -1;
        if (sl_exec_read(a->x, sl_plan_span(a->plan, piece), bytes[0]) != SLUICE_OK) return -1;
        if (sl_exec_read(b->x, sl_plan_span(b->plan, piece), bytes[1]) != SLUICE_OK) return -1;
        for (uint64_t i = 0; i < piece.bytes; i++) wrong += bytes[0][i] != bytes[1][i];
    }
    return wrong;
}

/* Stores the patterns from `first` on in one engine as float, in the other as they are, at an odd address. */
static sluice_status store_patterns(engine *as_float, engine *as_they_are, int p, uint32_t first)
{
    static float values[4096];
    static char halves[2 * 4096 + 1];
    int64_t count = as_float->g->parameters[p].count;
    for (int64_t i = 0; i < count; i++) {
        uint16_t half = (uint16_t)(first + (uint32_t)i);
        values[i] = sl_bf16_to_float(half);
        memcpy(halves + 1 + 2 * i, &half, sizeof half);
    }
    SL_TRY(sl_exec_store(as_float->x, p, -1, 0, count, values));
    SL_TRY(sl_exec_store_bf16(as_they_are->x, p, 0, count - 1, halves + 1));
    return sl_exec_store_bf16(as_they_are->x, p, count - 1, 1, halves + 1 + 2 * (count - 1));
}

TEST(every_pattern_of_bf16_is_stored_as_it_is_with_the_bits_of_its_float)
{
    engine a, b;
    int taken = 0;
    REQUIRE_OK(build_in(&a, NULL, SLUICE_BF16, (sl_plan_options){ .parameters = SLUICE_PLACE_HOST }));
    REQUIRE_OK(build_in(&b, NULL, SLUICE_BF16, (sl_plan_options){ .parameters = SLUICE_PLACE_HOST }));
    REQUIRE_OK(fill(&a, 0));
    REQUIRE_OK(fill(&b, 1)); /* lower halves that must go */
    for (int p = 0; p < a.g->parameter_count; p++) {
        if (!sl_exec_takes_bf16(b.x, p) || a.g->parameters[p].count < 2) continue;
        taken++;
        for (uint32_t first = 0; first < 65536; first += (uint32_t)a.g->parameters[p].count)
            REQUIRE_OK(store_patterns(&a, &b, p, first));
    }
    CHECK(taken == a.g->parameter_count);
    for (int layer = 0; layer < a.g->layer_count; layer++) CHECK_EQ(byte_differences(&a, &b, layer), 0);
    destroy(&b);
    destroy(&a);
    REQUIRE_OK(build(&b, SLUICE_PLACE_HOST, SLUICE_PLACE_HOST));
    for (int p = 0; p < b.g->parameter_count; p++) CHECK(!sl_exec_takes_bf16(b.x, p)); /* it keeps floats */
    destroy(&b);
}

/* The weights of one engine, rounded to bf16, to another. */
static sluice_status copy_rounded(engine *from, engine *to)
{
    static float values[4096];
    for (int p = 0; p < from->g->parameter_count; p++) {
        int64_t count = from->g->parameters[p].count;
        SL_TRY(sl_exec_fetch(from->x, p, -1, 0, count, values));
        for (int64_t i = 0; i < count; i++) values[i] = sl_bf16_to_float(sl_float_to_bf16(values[i]));
        SL_TRY(sl_exec_store(to->x, p, -1, 0, count, values));
    }
    return SLUICE_OK;
}

TEST(a_file_of_bf16_loads_as_its_values_in_fp32_do)
{
    char file[4200];
    engine e[3]; /* writes the file, reads it, has the values by another way */
    snprintf(file, sizeof file, "%.4000s/w.safetensors", test_tmpdir());
    for (int i = 0; i < 3; i++)
        REQUIRE_OK(build_in(&e[i], NULL, SLUICE_BF16, (sl_plan_options){ .parameters = SLUICE_PLACE_HOST }));
    REQUIRE_OK(fill(&e[0], 0));
    REQUIRE_OK(fill(&e[1], 1));
    REQUIRE_OK(copy_rounded(&e[0], &e[2]));
    REQUIRE_OK(sl_weights_save(e[0].x, file, SLUICE_BF16));
    REQUIRE_OK(sl_weights_load(e[1].x, file));
    for (int layer = 0; layer < e[0].g->layer_count; layer++) CHECK_EQ(byte_differences(&e[1], &e[2], layer), 0);
    for (int i = 0; i < 3; i++) destroy(&e[i]);
}

/* ---- several ranks ---- */

typedef struct job {
    char folder[4096], file[4200], weights[65], state[65];
    int stage;
    sluice_partition partition;
    bool background;
    uint64_t step;
} job;

static sl_plan_options options_of(const job *j)
{
    return (sl_plan_options){ .stage = j->stage,
                              .partition = j->partition,
                              .partition_block = 1024,
                              .parameters = j->stage % 2 == 0 ? SLUICE_PLACE_DEVICE : SLUICE_PLACE_HOST,
                              .state = j->stage % 3 == 0 ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE,
                              .snapshot = j->background };
}

static sluice_status save_on_rank(void *user, sluice_world *world)
{
    job *j = user;
    engine e;
    sl_save *save;
    char path[4096];
    sl_checkpoint_meta meta = fixture_meta(j->step);
    SL_TRY(build_rank(&e, world, options_of(j)));
    SL_TRY(fill(&e, (int)j->step));
    SL_TRY(sl_checkpoint_begin(e.x, &e.slots, &meta, j->folder, 100, j->background, &save));
    if (j->background) SL_TRY(fill(&e, 50)); /* what comes after the snapshot is not saved */
    SL_TRY(sl_checkpoint_finish(save, path));
    destroy(&e);
    return SLUICE_OK;
}

static sluice_status differs(const char *what)
{
    return sl_fail(SLUICE_ERR_FAILED, "%s differ", what);
}

static sluice_status load_on_rank(void *user, sluice_world *world)
{
    static float values[4096];
    job *j = user;
    engine e;
    char weights[65], state[65];
    sl_checkpoint_meta meta;
    SL_TRY(build_rank(&e, world, options_of(j)));
    SL_TRY(sl_checkpoint_load(e.x, &e.slots, j->folder, fixture_identity(), NULL, &meta));
    if (meta.step != j->step || differences(&e, true, (int)j->step) != 0) return differs("values");
    if (copy_differences(&e, (int)j->step) != 0) return differs("copies");
    SL_TRY(sl_state_hash(e.x, &e.slots, 0.5, weights, state));
    if (strcmp(weights, j->weights) != 0 || strcmp(state, j->state) != 0) return differs("hashes");
    for (int p = 0; p < e.g->parameter_count; p++) {
        SL_TRY(sl_parameter_read(e.x, p, values));
        for (int64_t i = 0; i < e.g->parameters[p].count; i++)
            if (values[i] != value_of(p, -1, i, (int)j->step)) return differs("gathered values");
    }
    SL_TRY(sl_weights_save(e.x, j->file, SLUICE_F32));
    SL_TRY(fill(&e, 70));
    SL_TRY(sl_weights_load(e.x, j->file));
    if (differences(&e, false, (int)j->step) + copy_differences(&e, (int)j->step) != 0) return differs("weights");
    destroy(&e);
    return SLUICE_OK;
}

/* What one rank's hashes are of the values of j->step. */
static sluice_status expected_hashes(job *j)
{
    engine e;
    SL_TRY(build(&e, SLUICE_PLACE_DEVICE, SLUICE_PLACE_DEVICE));
    SL_TRY(fill(&e, (int)j->step));
    SL_TRY(sl_state_hash(e.x, &e.slots, 0.5, j->weights, j->state));
    destroy(&e);
    return SLUICE_OK;
}

TEST(a_checkpoint_does_not_depend_on_ranks_stage_and_partition)
{
    sluice_launch_options o;
    job j = { 0 };
    sluice_launch_options_init(&o);
    o.timeout_seconds = 30;
    snprintf(j.folder, sizeof j.folder, "%s", test_memory_path());
    snprintf(j.file, sizeof j.file, "%s.safetensors", j.folder);
    for (int i = 0; i < 12; i++) {
        j.step = (uint64_t)i + 1;
        REQUIRE_OK(expected_hashes(&j));
        j.stage = i % 4;
        j.partition = (sluice_partition)(i / 3);
        j.background = i % 2 == 0;
        o.ranks = 1 + i % 3;
        REQUIRE_OK(sluice_launch(&o, save_on_rank, &j));
        j.stage = 3 - i % 4;
        j.partition = (sluice_partition)((i + 1) % 4);
        o.ranks = 1 + (i + 1 + i / 3) % 3;
        REQUIRE_OK(sluice_launch(&o, load_on_rank, &j));
    }
}
