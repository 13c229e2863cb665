/* What a session does for its client: load models, run, time and record them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"

enum { MOST_WORDS = 1024, LEAST_CALLS = 10 };

static tw_model *model_of(const tw_calls *calls, const tw_json *header) {
  int64_t number = natural(header, "model");
  return number >= 1 && number <= MOST_MODELS ? calls->models[number - 1] : NULL;
}

/* ---- inputs and outputs ----------------------------------------------------------------------- */

static tw_outcome input_from(const tw_calls *calls, const tw_json *tree, const tw_tensor *wanted,
                             tw_array *input, tw_error *error) {
  const tw_json *number = tw_json_field(tree, "array", TW_INTEGER);
  if (!number) {
    tw_fail(error, "input %s must be passed as an array: this device runs no Python", wanted->text);
    return REFUSED;
  }
  if (number->integer < 0 || (uint64_t)number->integer >= calls->array_count)
    return wrong(error, "inputs");
  *input = calls->arrays[number->integer];
  return ANSWERED;
}

static tw_outcome inputs_from(const tw_calls *calls, const tw_json *header, const tw_model *model,
                              tw_array *inputs, tw_error *error) {
  const tw_json *tree = tw_json_field(header, "inputs", TW_OBJECT);
  const tw_json *listed = tw_json_field(tree, "listed", TW_LIST);
  const tw_json *named = tw_json_field(tree, "named", TW_OBJECT);
  int32_t count = tw_model_input_count(model);
  if (!listed && !named && tw_json_find(tree, "listed"))
    return done_if(tw_fail(error, "pass inputs as a list of arrays, or as a dict of them by name"));
  if (!listed && !named) return wrong(error, "inputs");
  const tw_json *item = listed ? listed->first : NULL;
  if ((listed ? listed : named)->count != (size_t)count) {
    tw_fail(error, "%zu inputs were given, and the model takes %d",
            (listed ? listed : named)->count, (int)count);
    return REFUSED;
  }
  for (int32_t k = 0; k < count; k++) {
    const tw_tensor *wanted = tw_model_input(model, k);
    const tw_json *value = listed ? item : tw_json_find(named, wanted->name);
    if (!value) {
      tw_fail(error, "input %s is missing", wanted->text);
      return REFUSED;
    }
    tw_outcome outcome = input_from(calls, value, wanted, &inputs[k], error);
    if (outcome != ANSWERED) return outcome;
    if (listed) item = item->next;
  }
  return ANSWERED;
}

bool tw_give_array(tw_calls *calls, const char *type, int64_t rows, int64_t columns, void *data) {
  tw_array made = {.type = type, .rank = columns ? 2 : 1, .shape = {rows, columns}, .data = data};
  calls->results = calloc(1, sizeof *calls->results);
  if (!calls->results) return free(data), false;
  calls->results[0] = made;
  calls->result_count = 1;
  return true;
}

/* ---- calls ------------------------------------------------------------------------------------ */

static tw_outcome run(tw_calls *calls, tw_model *model, const tw_json *header,
                      const tw_array *inputs, tw_error *error) {
  (void)header;
  int32_t count = tw_model_output_count(model);
  calls->results = calloc((size_t)count + 1, sizeof *calls->results);
  if (!calls->results) return done_if(tw_no_memory(error));
  if (!tw_model_run(model, inputs, calls->results, error)) return REFUSED;
  calls->result_count = (size_t)count;
  tw_text_print(&calls->fields, "\"outputs\":[");
  for (int32_t k = 0; k < count; k++)
    tw_text_print(&calls->fields, "%s{\"array\":%d}", k ? "," : "", (int)k);
  tw_text_print(&calls->fields, "],");
  return ANSWERED;
}

static tw_outcome time_it(tw_calls *calls, tw_model *model, const tw_json *header,
                          const tw_array *inputs, tw_error *error) {
  int64_t repeat = natural(header, "repeat"), warmup = natural(header, "warmup"), count = 0;
  double least = positive(header, "min_repeat_ms");
  if (repeat < 0 || warmup < 0 || least < 0 || repeat > MOST_SAMPLES || warmup > MOST_SAMPLES)
    return wrong(error, "repeat");
  repeat = repeat ? repeat : 1;
  double *samples = calloc((size_t)repeat, sizeof *samples);
  if (!samples) return done_if(tw_no_memory(error));
  if (!tw_model_samples(model, inputs, (int32_t)repeat, least / 1e3, (int32_t)warmup, samples,
                        &count, error)) {
    free(samples);
    return REFUSED;
  }
  tw_text_print(&calls->fields, "\"samples\":{\"array\":0},\"calls\":%" PRId64 ",", count);
  return done_if(tw_give_array(calls, "float64", repeat, 0, samples) || tw_no_memory(error));
}

static bool run_once(tw_model *model, const tw_array *inputs, tw_array *outputs, tw_error *error) {
  bool is_done = tw_model_run(model, inputs, outputs, error);
  if (is_done) tw_arrays_free(outputs, tw_model_output_count(model));
  return is_done;
}

static tw_outcome benchmark(tw_calls *calls, tw_model *model, const tw_json *header,
                            const tw_array *inputs, tw_error *error) {
  int64_t warmup = natural(header, "warmup"), count = 0;
  double seconds = positive(header, "seconds");
  if (warmup < 0 || warmup > MOST_SAMPLES || seconds < 0) return wrong(error, "seconds");
  double *samples = calloc(MOST_SAMPLES, sizeof *samples);
  tw_array *outputs = calloc((size_t)tw_model_output_count(model) + 1, sizeof *outputs);
  bool is_done = samples && outputs ? true : tw_no_memory(error);
  for (int64_t k = 0; is_done && k < warmup; k++) is_done = run_once(model, inputs, outputs, error);
  double end = tw_now() + seconds;
  while (is_done && count < MOST_SAMPLES && (count < LEAST_CALLS || tw_now() < end)) {
    double start = tw_now();
    is_done = run_once(model, inputs, outputs, error);
    samples[count++] = tw_now() - start;
  }
  free(outputs);
  if (!is_done) return free(samples), REFUSED;
  tw_text_print(&calls->fields, "\"samples\":{\"array\":0},");
  return done_if(tw_give_array(calls, "float64", count, 0, samples) || tw_no_memory(error));
}

/* ---- recording -------------------------------------------------------------------------------- */

/* A model with another host program, which records when kernels begin and end. */
static bool load_recorder(tw_model *model, const tw_array *code, tw_error *error) {
  tw_model_close(model->recorder);
  tw_model *made = model->recorder = calloc(1, sizeof *made);
  if (!made) return tw_no_memory(error);
  int64_t size = tw_array_elements(code);
  uint8_t *copy = tw_take(&made->arena, (size_t)size + 1, 1);
  tw_member *member = tw_take(&made->arena, 1, sizeof *member);
  made->program = model->program;
  size_t count = (size_t)made->program.object_count;
  const tw_member **objects = tw_take(&made->arena, count, sizeof *objects);
  if (!copy || !member || !objects) return tw_no_memory(error);
  memcpy(copy, code->data, (size_t)size);
  *member = (tw_member){"the recorder", copy, (size_t)size};
  memcpy(objects, model->program.objects, count * sizeof *objects);
  objects[0] = member;
  made->program.objects = objects;
  return tw_model_load_code(made, error) && tw_model_set_threads(made, model->threads, error);
}

static tw_outcome record(tw_calls *calls, tw_model *model, const tw_json *header,
                         const tw_array *inputs, tw_error *error) {
  int64_t words = natural(header, "words"), runs = natural(header, "runs");
  int64_t warmup = natural(header, "warmup");
  if (words < 0 || words > MOST_WORDS || runs < 1 || runs > MOST_SAMPLES || warmup < 0)
    return wrong(error, "words");
  if (words) {
    const tw_array *code = calls->array_count ? &calls->arrays[calls->array_count - 1] : NULL;
    if (!code || tw_type_size(code->type) != 1) return wrong(error, "arrays");
    if (!load_recorder(model, code, error)) return REFUSED;
    model->recorder_words = words;
  }
  if (!model->recorder || !model->recorder->entry) return wrong(error, "words");
  char name[512];
  snprintf(name, sizeof name, "%s.profile", model->program.name);
  /* Where events go, how many fit, how many there were. */
  int64_t *state = (int64_t *)tw_image_address(&model->recorder->image, name);
  tw_array *outputs = calloc((size_t)tw_model_output_count(model) + 1, sizeof *outputs);
  bool is_done = state && outputs ? true : tw_fail(error, "the recorder has no %s", name);
  for (int64_t k = 0; is_done && k < (warmup ? warmup : 1); k++) {
    memset(state, 0, 3 * sizeof *state);
    is_done = run_once(model->recorder, inputs, outputs, error);
  }
  int64_t room = is_done ? runs * state[2] : 0, row = model->recorder_words * 8;
  int64_t *events = is_done ? calloc((size_t)room + 1, (size_t)row) : NULL;
  if (is_done && !events) is_done = tw_no_memory(error);
  if (is_done) state[0] = (int64_t)(uintptr_t)events, state[1] = room, state[2] = 0;
  for (int64_t k = 0; is_done && k < runs; k++)
    is_done = run_once(model->recorder, inputs, outputs, error);
  int64_t count = is_done && state[2] < room ? state[2] : room;
  if (state) memset(state, 0, 3 * sizeof *state);
  free(outputs);
  if (!is_done) return free(events), REFUSED;
  tw_text_print(&calls->fields, "\"events\":{\"array\":0},");
  return done_if(tw_give_array(calls, "int64", count, model->recorder_words, events) ||
                 tw_no_memory(error));
}

/* ---- models ----------------------------------------------------------------------------------- */

tw_outcome tw_call_load(tw_calls *calls, const tw_json *header, int file, int64_t size,
                        tw_error *error) {
  int64_t used = 0;
  int slot = -1;
  for (int k = MOST_MODELS - 1; k >= 0; k--) {
    used += calls->models[k] ? calls->sizes[k] : 0;
    if (!calls->models[k]) slot = k;
  }
  if (slot < 0 || size > calls->limits->folder_bytes - used)
    return done_if(tw_fail(error, "there is no room for the model on this device"));
  int64_t count = optional(header, "threads");
  if (count < 0 || count > INT32_MAX) return wrong(error, "threads");
  if (!tw_model_open_file(file, (int32_t)count, calls->trust, &calls->models[slot], error))
    return REFUSED;
  calls->sizes[slot] = size;
  tw_text_print(&calls->fields, "\"model\":%d,\"target\":", slot + 1);
  tw_json_write_text(&calls->fields, tw_model_target(calls->models[slot]));
  tw_text_print(&calls->fields, ",");
  return ANSWERED;
}

static tw_outcome unload(tw_calls *calls, const tw_json *header) {
  int64_t number = natural(header, "model");
  tw_model_close(calls->models[number - 1]);
  calls->models[number - 1] = NULL;
  return ANSWERED;
}

static tw_outcome set_threads(tw_model *model, const tw_json *header, tw_error *error) {
  const tw_json *cores = tw_json_find(header, "affinity");
  int64_t wanted = optional(header, "count");
  if (wanted < 0 || wanted > INT32_MAX) return wrong(error, "count");
  if (cores && cores->kind != TW_NULL)
    return done_if(tw_fail(error, "this device does not tie threads to processors"));
  return done_if(tw_model_set_threads(model, (int32_t)wanted, error));
}

/* ---- answering -------------------------------------------------------------------------------- */

typedef tw_outcome with_inputs(tw_calls *, tw_model *, const tw_json *, const tw_array *,
                               tw_error *);
static const struct {
  const char *name;
  with_inputs *call;
} table[] = {{"run", run}, {"time", time_it}, {"benchmark", benchmark}, {"record", record}};

tw_outcome tw_call_answer(tw_calls *calls, const tw_json *header, tw_error *error) {
  const char *name = tw_json_text(header, "call");
  if (!name) return wrong(error, "call");
  if (!strcmp(name, "ping")) return ANSWERED;
  if (!strcmp(name, "trial"))
    return done_if(tw_fail(error, "clients of this device make trials by calls of kernels"));
  if (calls->trust && (tw_is_kernel_call(name) || !strcmp(name, "record")))
    return done_if(tw_fail(error, "this device neither profiles models nor takes single kernels: that "
                                  "takes code that nobody has signed, and the server was started "
                                  "with --trusted"));
  if (tw_is_kernel_call(name)) return tw_kernel_answer(calls, name, header, error);
  tw_model *model = model_of(calls, header);
  if (!model) return wrong(error, "model");
  if (!strcmp(name, "unload")) return unload(calls, header);
  if (!strcmp(name, "threads")) return set_threads(model, header, error);
  for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
    if (strcmp(name, table[k].name)) continue;
    tw_array *inputs = calloc((size_t)tw_model_input_count(model) + 1, sizeof *inputs);
    if (!inputs) return done_if(tw_no_memory(error));
    tw_outcome outcome = inputs_from(calls, header, model, inputs, error);
    if (outcome == ANSWERED) outcome = table[k].call(calls, model, header, inputs, error);
    free(inputs);
    return outcome;
  }
  return wrong(error, "call");
}

void tw_call_clear(tw_calls *calls) {
  tw_arrays_free(calls->arrays, (int32_t)calls->array_count);
  tw_arrays_free(calls->results, (int32_t)calls->result_count);
  free(calls->arrays);
  free(calls->results);
  tw_text_free(&calls->fields);
  calls->arrays = calls->results = NULL;
  calls->array_count = calls->result_count = 0;
}
