/* How long a model takes. */
#include <stdlib.h>
#include <time.h>

#include "internal.h"

double tw_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double tw_calls_seconds(tw_call *calls, int64_t count, int64_t runs, tw_error *error) {
  double start = tw_now();
  for (int64_t k = 0; k < runs; k++)
    if (!tw_call_run(&calls[k % count], error)) return -1;
  return tw_now() - start;
}

int64_t tw_calls_runs(tw_call *calls, int64_t count, double min_seconds, tw_error *error) {
  int64_t runs = 1;
  for (;;) {
    double taken = tw_calls_seconds(calls, count, runs, error);
    if (taken < 0) return -1;
    if (taken >= min_seconds || runs > INT64_MAX / 16) return runs;
    double more = taken > 0 ? 1.2 * min_seconds / taken : 10;
    runs *= more < 2 ? 2 : more > 10 ? 10 : (int64_t)more;
  }
}

static bool take_samples(tw_call *call, int32_t repeat, double min_seconds, int32_t warmup,
                         double *samples, int64_t *calls, tw_error *error) {
  for (int32_t k = 0; k < warmup; k++)
    if (!tw_call_run(call, error)) return false;
  *calls = tw_calls_runs(call, 1, min_seconds, error);
  for (int32_t k = 0; *calls > 0 && k < repeat; k++) {
    double taken = tw_calls_seconds(call, 1, *calls, error);
    if (taken < 0) return false;
    samples[k] = taken / (double)*calls;
  }
  return *calls > 0;
}

bool tw_model_samples(tw_model *model, const tw_array *inputs, int32_t repeat, double min_seconds,
                      int32_t warmup, double *samples, int64_t *calls, tw_error *error) {
  int32_t count = model->program.output_count;
  tw_array *outputs = calloc((size_t)count + 1, sizeof *outputs);
  if (!outputs) return tw_no_memory(error);
  tw_call call;
  bool is_done = tw_call_bind(&call, model, inputs, outputs, error) &&
                 take_samples(&call, repeat, min_seconds, warmup, samples, calls, error);
  tw_call_free(&call);
  tw_arrays_free(outputs, count);
  free(outputs);
  return is_done;
}

static int by_size(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

bool tw_model_time(tw_model *model, const tw_array *inputs, int32_t repeat, double min_seconds,
                   int32_t warmup, tw_timing *timing, tw_error *error) {
  int32_t count = repeat < 1 ? 1 : repeat;
  double *samples = calloc((size_t)count, sizeof *samples);
  if (!samples) return tw_no_memory(error);
  bool is_done = tw_model_samples(model, inputs, count, min_seconds, warmup, samples,
                                  &timing->calls, error);
  if (is_done) {
    qsort(samples, (size_t)count, sizeof *samples, by_size);
    timing->least = samples[0];
    timing->median = (samples[count / 2] + samples[(count - 1) / 2]) / 2;
    timing->samples = count;
  }
  free(samples);
  return is_done;
}
