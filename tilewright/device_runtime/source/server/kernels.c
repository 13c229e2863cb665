/* Single kernels in a session: called, and timed side by side. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels.h"

/* ---- what a client says of a kernel ----------------------------------------------------------- */

static bool are_dims(const tw_json *list) {
  if (list->kind != TW_LIST || list->count > TW_MAX_RANK) return false;
  for (const tw_json *dim = list->first; dim; dim = dim->next)
    if (!tw_dim_is_good(dim)) return false;
  return true;
}

static bool are_texts(const tw_json *list) {
  if (!list || list->count > TW_MOST) return false;
  for (const tw_json *item = list->first; item; item = item->next)
    if (item->kind != TW_TEXT) return false;
  return true;
}

static bool is_param(const tw_json *param) {
  if (param->kind != TW_LIST || (param->count != SHAPE && !is_array(param))) return false;
  const tw_json *type = part(param, TYPE);
  if (part(param, NAME)->kind != TW_TEXT || type->kind != TW_TEXT || !tw_type_name(type->text))
    return false;
  if (!is_array(param)) return true;
  const tw_json *shape = part(param, SHAPE), *strides = part(param, STRIDES);
  const tw_json *alignment = part(param, ALIGNMENT);
  bool has_strides = strides->kind != TW_NULL;
  return are_dims(shape) && (!has_strides || (are_dims(strides) && strides->count == shape->count)) &&
         alignment->kind == TW_INTEGER && alignment->integer > 0 &&
         alignment->integer <= 1 << 20 && part(param, WRITTEN)->kind == TW_BOOL;
}

static bool are_params(const tw_json *list) {
  if (!list || list->count > MOST_ARRAYS) return false;
  for (const tw_json *param = list->first; param; param = param->next)
    if (!is_param(param)) return false;
  return true;
}

static bool read_messages(tw_program *program, tw_arena *arena, const tw_json *list) {
  program->messages = tw_take(arena, list->count + 1, sizeof *program->messages);
  if (!program->messages) return false;
  for (const tw_json *item = list->first; item; item = item->next)
    program->messages[program->message_count++] = item->text;
  return true;
}

/* The thread pool's code, where there is any, and the kernel's own. */
static bool keep_code(tw_model *model, const tw_array *arrays) {
  tw_program *program = &model->program;
  const tw_member **objects = tw_take(&model->arena, 2, sizeof *objects);
  tw_member *members = tw_take(&model->arena, 2, sizeof *members);
  if (!objects || !members) return false;
  for (int k = 1; k >= 0; k--) {
    size_t size = (size_t)tw_array_elements(&arrays[k]);
    if (k && !size) continue;
    uint8_t *copy = tw_take(&model->arena, size + 1, 1);
    if (!copy) return false;
    memcpy(copy, arrays[k].data, size);
    members[k] = (tw_member){k ? "the thread pool" : "the kernel", copy, size};
    objects[program->object_count++] = &members[k];
    program->has_pool = program->has_pool || k;
  }
  program->objects = objects;
  return true;
}

static tw_outcome read_kernel(tw_kernel *kernel, const tw_json *header, const tw_array *arrays,
                              tw_error *error) {
  tw_model *model = kernel->model;
  tw_program *program = &model->program;
  /* The header lives no longer than its request. */
  const tw_json *fields = tw_json_copy(&model->arena, header);
  const tw_json *target = tw_json_field(fields, "target", TW_LIST);
  const tw_json *messages = tw_json_field(fields, "messages", TW_LIST);
  program->name = tw_json_text(fields, "name");
  kernel->params = tw_json_field(fields, "params", TW_LIST);
  kernel->dims = tw_json_field(fields, "dims", TW_LIST);
  if (!program->name || !are_params(kernel->params)) return wrong(error, "params");
  if (!are_texts(kernel->dims) || !are_texts(messages)) return wrong(error, "dims");
  if (!target || target->count != 3 || part(target, 1)->kind != TW_TEXT ||
      part(target, 2)->kind != TW_LIST)
    return wrong(error, "target");
  int64_t threads = optional(fields, "threads");
  if (threads < 0 || threads > INT32_MAX) return wrong(error, "threads");
  char reason[256];
  if (tw_why_not(part(target, 1)->text, part(target, 2), reason, sizeof reason))
    return done_if(tw_fail(error, "%s cannot run on this device: %s", program->name, reason));
  for (const tw_json *f = part(target, 2)->first; f; f = f->next)
    program->uses_amx = program->uses_amx || !strcmp(f->text, "amx-tile");
  if (!read_messages(program, &model->arena, messages) || !keep_code(model, arrays))
    return done_if(tw_no_memory(error));
  return done_if(tw_model_load_code(model, error) &&
                 tw_model_set_threads(model, (int32_t)threads, error));
}

static tw_outcome load(tw_calls *calls, const tw_json *header, tw_error *error) {
  int slot = 0;
  while (slot < MOST_KERNELS && calls->kernels[slot]) slot++;
  if (slot == MOST_KERNELS)
    return done_if(tw_fail(error, "there is no room for the kernel on this device"));
  const tw_array *arrays = calls->arrays;
  if (calls->array_count != 2 || tw_type_size(arrays[0].type) != 1 ||
      tw_type_size(arrays[1].type) != 1)
    return wrong(error, "arrays");
  tw_model *model = calloc(1, sizeof *model);
  tw_kernel *kernel = model ? tw_take(&model->arena, 1, sizeof *kernel) : NULL;
  if (!kernel) return tw_model_close(model), done_if(tw_no_memory(error));
  kernel->model = model;
  tw_outcome outcome = read_kernel(kernel, header, arrays, error);
  if (outcome != ANSWERED) return tw_model_close(model), outcome;
  calls->kernels[slot] = kernel;
  tw_text_print(&calls->fields, "\"kernel\":%d,", slot + 1);
  return ANSWERED;
}

/* ---- calls ------------------------------------------------------------------------------------ */

/* What the kernel has written to goes back. */
static tw_outcome call_kernel(tw_calls *calls, const tw_kernel *kernel, const tw_json *header,
                              tw_error *error) {
  const tw_json *arguments = tw_json_field(header, "arguments", TW_LIST);
  if (!arguments) return wrong(error, "arguments");
  tw_call call;
  bool is_done = tw_kernel_bind(&call, kernel, calls, arguments, error) && tw_call_run(&call, error);
  tw_call_free(&call);
  calls->results = is_done ? calloc(calls->array_count + 1, sizeof *calls->results) : NULL;
  if (is_done && !calls->results) is_done = tw_no_memory(error);
  if (!is_done) return REFUSED;
  tw_text_print(&calls->fields, "\"written\":[");
  const tw_json *argument = arguments->first;
  for (const tw_json *p = kernel->params->first; p; p = p->next, argument = argument->next) {
    if (!is_written(p)) continue;
    tw_array *array = &calls->arrays[tw_array_number(calls, argument)];
    const char *between = calls->result_count ? "," : "";
    tw_text_print(&calls->fields, "%s{\"array\":%zu}", between, calls->result_count);
    calls->results[calls->result_count++] = *array;
    array->data = NULL;
  }
  tw_text_print(&calls->fields, "],");
  return ANSWERED;
}

static tw_kernel *kernel_of(const tw_calls *calls, const tw_json *number) {
  bool is_there = is_natural(number) && number->integer >= 1 && number->integer <= MOST_KERNELS;
  return is_there ? calls->kernels[number->integer - 1] : NULL;
}

/* A kernel with the sets of arguments that its runs take turns with. */
typedef struct {
  tw_call *calls;
  int64_t count, runs;
} timed;

enum { MOST_SETS = 64, PAUSE_NANOSECONDS = 100000 };

/* Threads of the kernel before spin for a while, and would disturb. */
static void pause_a_little(void) { nanosleep(&(struct timespec){0, PAUSE_NANOSECONDS}, NULL); }

/* A sample of each kernel in every round, so that noise falls on all alike. */
static bool take_samples(timed *all, int64_t count, int64_t rounds, double least, int64_t warmup,
                         double *samples, tw_error *error) {
  for (timed *it = all; it < all + count; it++) {
    if (warmup && tw_calls_seconds(it->calls, it->count, warmup, error) < 0) return false;
    it->runs = tw_calls_runs(it->calls, it->count, least, error);
    if (it->runs < 0) return false;
  }
  for (int64_t round = 0; round < rounds; round++)
    for (int64_t k = 0; k < count; k++) {
      pause_a_little();
      double taken = tw_calls_seconds(all[k].calls, all[k].count, all[k].runs, error);
      if (taken < 0) return false;
      samples[k * rounds + round] = taken / (double)all[k].runs;
    }
  return true;
}

/* The sets of arguments of a kernel; all kernels share one where they have none of their own. */
static bool bind_sets(timed *it, const tw_kernel *kernel, const tw_calls *calls,
                      const tw_json *shared, const tw_json *own, tw_error *error) {
  it->calls = calloc(own ? own->count : 1, sizeof *it->calls);
  if (!it->calls) return tw_no_memory(error);
  const tw_json *set = own ? own->first : shared;
  do {
    if (!tw_kernel_bind(&it->calls[it->count++], kernel, calls, set, error)) return false;
    set = own ? set->next : NULL;
  } while (set);
  return true;
}

static void free_sets(timed *all, int64_t count) {
  for (int64_t k = 0; all && k < count; k++) {
    for (int64_t n = 0; n < all[k].count; n++) tw_call_free(&all[k].calls[n]);
    free(all[k].calls);
  }
  free(all);
}

static bool are_sets(const tw_json *each, size_t count) {
  if (!each || each->count != count) return false;
  for (const tw_json *sets = each->first; sets; sets = sets->next) {
    if (sets->kind != TW_LIST || !sets->count || sets->count > MOST_SETS) return false;
    for (const tw_json *set = sets->first; set; set = set->next)
      if (set->kind != TW_LIST) return false;
  }
  return true;
}

static tw_outcome measure(tw_calls *calls, const tw_json *header, tw_error *error) {
  const tw_json *kernels = tw_json_field(header, "kernels", TW_LIST);
  const tw_json *shared = tw_json_field(header, "arguments", TW_LIST);
  const tw_json *each = tw_json_field(header, "each", TW_LIST);
  int64_t rounds = natural(header, "rounds"), warmup = natural(header, "warmup");
  double least = positive(header, "min_repeat_ms");
  if (!kernels || !kernels->count || kernels->count > MOST_KERNELS) return wrong(error, "kernels");
  if (!shared && !are_sets(each, kernels->count)) return wrong(error, "arguments");
  if (rounds < 0 || rounds > MOST_SAMPLES / MOST_KERNELS || warmup < 0 || warmup > MOST_SAMPLES ||
      least < 0)
    return wrong(error, "rounds");
  for (const tw_json *number = kernels->first; number; number = number->next)
    if (!kernel_of(calls, number)) return wrong(error, "kernels");
  int64_t count = (int64_t)kernels->count, bound = 0;
  rounds = rounds ? rounds : 1;
  timed *all = calloc((size_t)count, sizeof *all);
  double *samples = calloc((size_t)(count * rounds), sizeof *samples);
  bool is_done = all && samples ? true : tw_no_memory(error);
  const tw_json *own = shared ? NULL : each->first;
  for (const tw_json *number = kernels->first; is_done && number; number = number->next) {
    is_done = bind_sets(&all[bound++], kernel_of(calls, number), calls, shared, own, error);
    own = own ? own->next : NULL;
  }
  is_done = is_done && take_samples(all, count, rounds, least / 1e3, warmup, samples, error);
  if (is_done) tw_text_print(&calls->fields, "\"samples\":{\"array\":0},\"calls\":[");
  for (int64_t k = 0; is_done && k < count; k++)
    tw_text_print(&calls->fields, "%s%" PRId64, k ? "," : "", all[k].runs);
  free_sets(all, bound);
  if (!is_done) return free(samples), REFUSED;
  tw_text_print(&calls->fields, "],");
  return done_if(tw_give_array(calls, "float64", count, rounds, samples) || tw_no_memory(error));
}

bool tw_is_kernel_call(const char *name) {
  static const char *const names[] = {"load_kernel", "unload_kernel", "call_kernel", "measure"};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    if (!strcmp(name, names[k])) return true;
  return false;
}

tw_outcome tw_kernel_answer(tw_calls *calls, const char *name, const tw_json *header,
                            tw_error *error) {
  if (!strcmp(name, "load_kernel")) return load(calls, header, error);
  if (!strcmp(name, "measure")) return measure(calls, header, error);
  const tw_json *number = tw_json_find(header, "kernel");
  tw_kernel *kernel = kernel_of(calls, number);
  if (!kernel) return wrong(error, "kernel");
  if (!strcmp(name, "call_kernel")) return call_kernel(calls, kernel, header, error);
  tw_model_close(kernel->model);
  calls->kernels[number->integer - 1] = NULL;
  return ANSWERED;
}
