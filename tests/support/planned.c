/* planned.c: see planned.h. */
#include "support/planned.h"

void plan_options_default(sl_plan_options *o)
{
    *o = (sl_plan_options){ .budget = { (uint64_t)1 << 40, (uint64_t)1 << 40 },
                            .rank_count = 1,
                            .state_ratio = 1,
                            .prefetch = -1,
                            .accumulation = 1,
                            .training = true,
                            .evaluation = true };
}

sluice_status plan_prepare(planned *fx)
{
    sl_form form = fx->options.state_form;
    sl_optim_options optim = { .clip = 1 };
    optim.states = form == SL_FORM_BF16      ? SLUICE_STATES_BF16
                   : form == SL_FORM_BLOCKS8 ? SLUICE_STATES_COMPACT
                                             : SLUICE_STATES_F32;
    sluice_optimizer_init(&optim.optimizer, SLUICE_ADAMW);
    sl_machine_default(&fx->machine);
    SL_TRY(sl_graph_finish(fx->graph));
    SL_TRY(sl_graph_lower(fx->graph, fx->precision, fx->wire));
    SL_TRY(sl_graph_differentiate(fx->graph));
    SL_TRY(sl_optim_create(fx->graph, &optim, &fx->optim));
    fx->options.state_slots = sl_optim_slots(fx->optim);
    fx->options.update_bytes_per_element =
        sl_optim_bytes_per_element(fx->optim, fx->precision, fx->wire, fx->options.state_form);
    return SLUICE_OK;
}

sluice_status plan_model(planned *fx, uint64_t seed)
{
    random_state r = { seed };
    SL_TRY(random_graph(&r, &fx->graph));
    SL_TRY(plan_prepare(fx));
    return sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan);
}

void planned_free(planned *fx)
{
    sl_plan_destroy(fx->plan);
    sl_optim_destroy(fx->optim);
    sluice_graph_destroy(fx->graph);
}
