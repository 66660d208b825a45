/* run_names.h: what a run keeps in its folder, checkpoint.path, by name. Checkpoints are folders in it, step-N and best. */
#ifndef SL_CORE_RUN_NAMES_H
#define SL_CORE_RUN_NAMES_H

#define SL_RUN_LOCK     "lock"
#define SL_LATEST_NAME  "latest"
#define SL_JOURNAL_NAME "log.jsonl"
#define SL_PROFILE_NAME "profile.json"
#define SL_TUNED_FILE   "tuned.json"
#define SL_BEST_NAME    "best" /* a link to the best checkpoint */
#define SL_KEPT_MODEL                                                                                                  \
    "model" /* a folder: the files of its model without weights, from which an export makes a whole one */
#define SL_MANIFEST_NAME "manifest.json" /* of a checkpoint, in its folder */
#define SL_RANK_0_NAME   "rank-0.bin"    /* likewise */

#endif
