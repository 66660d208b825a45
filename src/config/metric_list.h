/* metric_list.h: every metric of evaluation, one row each: the names that settings take, and what train/metrics.c makes of
 * them.
 *
 *     ROW(ID, name, better, of, finish)
 *
 * better: LOWER or HIGHER. of: what a model must be judged by to have it (sl_judged of train/metrics.h), joined by |;
 * TWO_CLASSES stands for two classes or a binary score. finish: the function of metrics.c that makes the value of what was
 * collected. */
#ifndef SL_CONFIG_METRIC_LIST_H
#define SL_CONFIG_METRIC_LIST_H

#define SL_METRICS(ROW)                                                                                                \
    ROW(LOSS, "loss", LOWER, ANYTHING, loss)                                                                           \
    ROW(ACCURACY, "accuracy", HIGHER, CLASSES | BINARY, accuracy)                                                      \
    ROW(PRECISION, "precision", HIGHER, CLASSES | BINARY, precision)                                                   \
    ROW(RECALL, "recall", HIGHER, CLASSES | BINARY, recall)                                                            \
    ROW(F1, "f1", HIGHER, CLASSES | BINARY, f1)                                                                        \
    ROW(PRECISION_MACRO, "precision_macro", HIGHER, CLASSES | BINARY, precision_macro)                                 \
    ROW(RECALL_MACRO, "recall_macro", HIGHER, CLASSES | BINARY, recall_macro)                                          \
    ROW(F1_MACRO, "f1_macro", HIGHER, CLASSES | BINARY, f1_macro)                                                      \
    ROW(AUC, "auc", HIGHER, TWO_CLASSES, auc)                                                                          \
    ROW(LOG_LOSS, "log_loss", LOWER, CLASSES | BINARY, log_loss)                                                       \
    ROW(MAE, "mae", LOWER, VALUES, mae)                                                                                \
    ROW(RMSE, "rmse", LOWER, VALUES, rmse)                                                                             \
    ROW(R2, "r2", HIGHER, VALUES, r2)                                                                                  \
    ROW(PERPLEXITY, "perplexity", LOWER, TOKENS, perplexity)                                                           \
    ROW(BITS_PER_BYTE, "bits_per_byte", LOWER, TOKENS, bits_per_byte)                                                  \
    ROW(TOKEN_ACCURACY, "token_accuracy", HIGHER, TOKENS, accuracy)                                                    \
    ROW(WER, "wer", LOWER, TRANSCRIPTS, wer)                                                                           \
    ROW(CER, "cer", LOWER, TRANSCRIPTS, cer)

/* "loss", "accuracy" and so on: SL_METRIC_LOSS is the first. */
#define SL_METRIC_ID(id_, name_, better_, of_, finish_) SL_METRIC_##id_,
typedef enum { SL_METRICS(SL_METRIC_ID) SL_METRIC_COUNT } sl_metric;
#undef SL_METRIC_ID

/* Choices of a setting that names a metric: "auto", which is 0 there, then metric m, which is m + 1. */
#define SL_METRIC_CHOICE(id_, name_, better_, of_, finish_) "|" name_
#define SL_METRIC_CHOICES                                   "auto" SL_METRICS(SL_METRIC_CHOICE)

#endif
