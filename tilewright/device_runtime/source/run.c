/* One run of a model: what the code takes, and what it leaves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { ALIGNMENT = 64 };

static void *aligned(size_t size) {
  void *made = NULL;
  size_t whole = size ? size : 1;
  return posix_memalign(&made, ALIGNMENT, whole) ? NULL : made;
}

/* ---- inputs ----------------------------------------------------------------------------------- */

static bool wrong_input(tw_error *error, const tw_tensor *wanted, const tw_array *given) {
  tw_text text = {0};
  for (int32_t k = 0; k < given->rank && k < TW_MAX_RANK; k++)
    tw_text_print(&text, "%s%" PRId64, k ? ", " : "", given->shape[k]);
  tw_fail(error, "input %s was given as %s[%s]", wanted->text, given->type ? given->type : "?",
          text.size ? text.data : "");
  tw_text_free(&text);
  return false;
}

static bool check_input(const tw_tensor *wanted, const tw_array *given, tw_error *error) {
  bool is_typed = given->type && !strcmp(given->type, wanted->type);
  if (!is_typed || given->rank != wanted->rank || tw_array_elements(given) < 0)
    return wrong_input(error, wanted, given);
  if (!given->data && tw_array_elements(given))
    return tw_fail(error, "input %s has no data", wanted->name);
  if ((uintptr_t)given->data % tw_type_size(given->type))
    return tw_fail(error, "input %s is not aligned to its elements", wanted->name);
  return true;
}

/* The sizes of all named dimensions, on which the inputs must agree. */
static bool learn_sizes(const tw_program *program, const tw_array *inputs, tw_sizes *sizes,
                        tw_arena *arena, tw_error *error) {
  for (int32_t k = 0; k < program->input_count; k++) {
    if (!check_input(&program->inputs[k], &inputs[k], error)) return false;
    int axis = 0;
    for (const tw_json *dim = program->input_shapes[k]->first; dim; dim = dim->next)
      if (!tw_dim_learn(dim, inputs[k].shape[axis++], sizes, arena)) return tw_no_memory(error);
  }
  for (int32_t k = 0; k < program->input_count; k++) {
    int axis = 0;
    for (const tw_json *dim = program->input_shapes[k]->first; dim; dim = dim->next) {
      int64_t value;
      if (!tw_dim_value(dim, sizes, &value) || value != inputs[k].shape[axis++])
        return wrong_input(error, &program->inputs[k], &inputs[k]);
    }
  }
  return true;
}

/* ---- outputs ---------------------------------------------------------------------------------- */

static bool take_output(tw_array *output, const tw_tensor *about, const tw_json *shape,
                        const tw_sizes *sizes, tw_error *error) {
  output->type = about->type;
  output->rank = about->rank;
  int axis = 0;
  for (const tw_json *dim = shape->first; dim; dim = dim->next, axis++)
    if (!tw_dim_value(dim, sizes, &output->shape[axis])) output->shape[axis] = -1;
  int64_t count = tw_array_elements(output);
  uint64_t bytes = (uint64_t)count * tw_type_size(output->type);
  if (count < 0) return tw_fail(error, "output %s has no such sizes", about->text);
  if (bytes > SIZE_MAX / 2 || !(output->data = aligned((size_t)bytes)))
    return tw_fail(error, "there is no memory for output %s of %" PRIu64 " bytes", about->name,
                   bytes);
  return true;
}

bool tw_call_finish(tw_call *call, tw_error *error) {
  const tw_program *program = &call->model->program;
  bool is_good = true;
  for (int32_t k = 0; k < program->output_count; k++) {
    int64_t at = program->records[k];
    if (at < 0) continue;
    tw_array *output = &call->outputs[k];
    output->type = program->outputs[k].type;
    output->rank = program->outputs[k].rank;
    output->data = (void *)(uintptr_t)call->record[at];
    for (int32_t axis = 0; axis < output->rank; axis++)
      output->shape[axis] = (int64_t)call->record[at + 1 + axis];
    call->record[at] = 0;
    if (tw_array_elements(output) < 0)
      is_good = tw_fail(error, "output %s has no such sizes", program->outputs[k].text);
  }
  return is_good;
}

void tw_arrays_free(tw_array *arrays, int32_t count) {
  for (int32_t k = 0; k < count; k++) {
    free(arrays[k].data);
    arrays[k].data = NULL;
  }
}

/* ---- calls ------------------------------------------------------------------------------------ */

bool tw_call_take_workspace(tw_call *call, tw_error *error) {
  int64_t size = call->model->workspace_size(call->words);
  if (size < 0 || (uint64_t)size > SIZE_MAX / 2) return tw_no_memory(error);
  call->workspace = aligned((size_t)size);
  return call->workspace ||
         tw_fail(error, "there is no memory for %" PRId64 " bytes of workspace", size);
}

static bool bind(tw_call *call, const tw_array *inputs, tw_arena *arena, tw_error *error) {
  const tw_program *program = &call->model->program;
  tw_sizes sizes = {0};
  if (!learn_sizes(program, inputs, &sizes, arena, error)) return false;
  uint64_t *word = call->words;
  for (int32_t k = 0; k < program->input_count; k++) *word++ = (uintptr_t)inputs[k].data;
  for (int32_t k = 0; k < program->direct_count; k++) {
    int32_t number = program->direct[k];
    if (!take_output(&call->outputs[number], &program->outputs[number],
                     program->output_shapes[number], &sizes, error))
      return false;
    *word++ = (uintptr_t)call->outputs[number].data;
  }
  *word++ = (uintptr_t)call->model->table;
  *word++ = (uintptr_t)call->record;
  for (int32_t k = 0; k < program->dim_count; k++) {
    tw_json name = {.kind = TW_TEXT, .text = program->dims[k]};
    int64_t value;
    if (!tw_dim_value(&name, &sizes, &value))
      return tw_fail(error, "no input tells the dimension %s", program->dims[k]);
    *word++ = (uint64_t)value;
  }
  if (!tw_call_take_workspace(call, error)) return false;
  *word++ = (uintptr_t)call->model->pool;
  *word++ = (uintptr_t)call->workspace;
  *word++ = (uintptr_t)call->failure;
  return true;
}

bool tw_call_bind(tw_call *call, tw_model *model, const tw_array *inputs, tw_array *outputs,
                  tw_error *error) {
  const tw_program *program = &model->program;
  size_t words = (size_t)program->input_count + (size_t)program->direct_count +
                 (size_t)program->dim_count + 5;
  memset(call, 0, sizeof *call);
  if (program->output_count) memset(outputs, 0, (size_t)program->output_count * sizeof *outputs);
  call->model = model;
  call->outputs = outputs;
  call->words = calloc(words, sizeof *call->words);
  call->record = calloc((size_t)program->record_words, sizeof *call->record);
  if (!call->words || !call->record) return tw_no_memory(error);
  tw_arena arena = {0};
  bool is_bound = bind(call, inputs, &arena, error);
  tw_give_back(&arena);
  return is_bound;
}

/* Why the code has stopped: its message has places for numbers out of its record. */
static bool stopped(tw_call *call, int32_t code, tw_error *error) {
  const tw_program *program = &call->model->program;
  const int64_t *values = call->failure + 1;
  int64_t number = call->failure[5];
  bool has_origin = number > 0 && number <= program->origin_count && *program->origins[number - 1];
  tw_text text = {0};
  const char *at = code > 0 && code <= program->message_count ? program->messages[code - 1] : "";
  for (; *at; at++) {
    bool is_place = *at == '{' && at[1] != '{';
    if (is_place)
      tw_text_print(&text, "%" PRId64, *values++);
    else
      tw_text_add(&text, at, 1);
    at += is_place || *at == '{' || *at == '}';
  }
  tw_fail(error, "%s stopped%s%s: %s", program->name, has_origin ? " at " : "",
          has_origin ? program->origins[number - 1] : "", text.size ? text.data : "?");
  tw_text_free(&text);
  memset(call->failure, 0, sizeof call->failure);
  return false;
}

/* What an earlier run handed over and nobody has taken. */
static void drop_record(tw_call *call) {
  const tw_program *program = &call->model->program;
  for (int32_t k = 0; call->record && k < program->output_count; k++) {
    int64_t at = program->records[k];
    if (at < 0) continue;
    free((void *)(uintptr_t)call->record[at]);
    call->record[at] = 0;
  }
}

bool tw_call_run(tw_call *call, tw_error *error) {
  drop_record(call);
  int32_t code = call->model->entry(call->words);
  return !code || stopped(call, code, error);
}

void tw_call_free(tw_call *call) {
  drop_record(call);
  free(call->words);
  free(call->record);
  free(call->workspace);
}

bool tw_model_run(tw_model *model, const tw_array *inputs, tw_array *outputs, tw_error *error) {
  tw_call call;
  bool is_done = tw_call_bind(&call, model, inputs, outputs, error) &&
                 tw_call_run(&call, error) && tw_call_finish(&call, error);
  tw_call_free(&call);
  if (!is_done) tw_arrays_free(outputs, model->program.output_count);
  return is_done;
}
