/* What a program takes and gives, as its manifest says. */
#include <string.h>

#include "program.h"

static const char **texts_of(tw_arena *arena, const tw_json *model, const char *key, int32_t *count,
                             tw_error *error) {
  const tw_json *list = tw_json_field(model, key, TW_LIST);
  if (!list || list->count > TW_MOST) {
    tw_wrong(error, key);
    return NULL;
  }
  const char **made = tw_take(arena, list->count + 1, sizeof *made);
  if (!made) {
    tw_no_memory(error);
    return NULL;
  }
  for (const tw_json *item = list->first; item; item = item->next) {
    if (item->kind != TW_TEXT) {
      tw_wrong(error, key);
      return NULL;
    }
    made[(*count)++] = item->text;
  }
  return made;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static bool describe(tw_tensor *tensor, tw_arena *arena, const tw_json *shape) {
  tw_text text = {0};
  tw_text_add(&text, tensor->name, strlen(tensor->name));
  tw_text_print(&text, ": %s[", tensor->type);
  for (const tw_json *dim = shape->first; dim; dim = dim->next) {
    tw_dim_text(&text, dim);
    if (dim->next) tw_text_add(&text, ", ", 2);
  }
  tw_text_add(&text, "]", 1);
  if (!text.failed) tensor->text = tw_take_text(arena, text.data, text.size);
  tw_text_free(&text);
  return tensor->text != NULL;
}

static bool read_tensor(tw_tensor *tensor, const tw_json **shape, tw_arena *arena,
                        const tw_json *fields, tw_error *error) {
  tensor->name = tw_json_text(fields, "name");
  tensor->type = tw_type_name(tw_json_text(fields, "dtype"));
  if (tensor->name && tw_json_find(fields, "kind"))
    return tw_fail(error, "%s is a sequence or an optional one, which needs Python", tensor->name);
  *shape = tw_json_field(fields, "shape", TW_LIST);
  if (!tensor->name || !tensor->type || !*shape || (*shape)->count > TW_MAX_RANK)
    return tw_wrong(error, "an input or output");
  for (const tw_json *dim = (*shape)->first; dim; dim = dim->next) {
    if (!tw_dim_is_good(dim)) return tw_wrong(error, "a dimension");
    tensor->shape[tensor->rank++] = dim->kind == TW_INTEGER ? dim->integer : -1;
  }
  return describe(tensor, arena, *shape) || tw_no_memory(error);
}

static bool read_tensors(tw_tensor **tensors, const tw_json ***shapes, int32_t *count,
                         tw_arena *arena, const tw_json *model, const char *key, tw_error *error) {
  const tw_json *list = tw_json_field(model, key, TW_LIST);
  if (!list || list->count > TW_MOST) return tw_wrong(error, key);
  *tensors = tw_take(arena, list->count, sizeof **tensors);
  *shapes = tw_take(arena, list->count, sizeof **shapes);
  if (!*tensors || !*shapes) return tw_no_memory(error);
  for (const tw_json *item = list->first; item; item = item->next, ++*count)
    if (!read_tensor(*tensors + *count, *shapes + *count, arena, item, error)) return false;
  return true;
}

/* ---- where outputs come from ------------------------------------------------------------------ */

static bool is_output(const tw_program *program, const tw_json *number) {
  return number && number->kind == TW_INTEGER && number->integer >= 0 &&
         number->integer < program->output_count;
}

static bool read_places(tw_program *program, tw_arena *arena, const tw_json *model,
                        tw_error *error) {
  const tw_json *direct = tw_json_field(model, "direct", TW_LIST);
  const tw_json *records = tw_json_field(model, "records", TW_LIST);
  size_t outputs = (size_t)program->output_count;
  if (!direct || !records || direct->count + records->count != outputs)
    return tw_fail(error, "its manifest is wrong: it says not of every output where it comes from");
  program->direct = tw_take(arena, outputs, sizeof *program->direct);
  program->records = tw_take(arena, outputs, sizeof *program->records);
  bool *seen = tw_take(arena, outputs, sizeof *seen);
  if (!program->direct || !program->records || !seen) return tw_no_memory(error);
  program->record_words = 1;
  for (size_t k = 0; k < outputs; k++) program->record_words += 1 + program->outputs[k].rank;
  for (const tw_json *number = direct->first; number; number = number->next) {
    if (!is_output(program, number) || seen[number->integer]) return tw_wrong(error, "direct");
    seen[number->integer] = true;
    program->records[number->integer] = -1;
    program->direct[program->direct_count++] = (int32_t)number->integer;
  }
  for (const tw_json *pair = records->first; pair; pair = pair->next) {
    const tw_json *number = pair->kind == TW_LIST && pair->count == 2 ? pair->first : NULL;
    if (!is_output(program, number) || seen[number->integer] ||
        number->next->kind != TW_INTEGER || number->next->integer < 0)
      return tw_wrong(error, "records");
    int64_t words = 1 + program->outputs[number->integer].rank, at = number->next->integer;
    if (at > program->record_words - words) return tw_wrong(error, "records");
    seen[number->integer] = true;
    program->records[number->integer] = at;
  }
  return true;
}

/* ---- dimensions and messages ------------------------------------------------------------------ */

static bool learn_names(const tw_json *dim, tw_sizes *sizes, tw_arena *arena) {
  if (dim->kind == TW_TEXT) return tw_dim_learn(dim, 0, sizes, arena);
  if (dim->kind == TW_INTEGER) return true;
  const tw_json *a = dim->first->next;
  return learn_names(a, sizes, arena) && learn_names(a->next, sizes, arena);
}

static bool check_dims(const tw_program *program, tw_arena *arena, tw_error *error) {
  tw_sizes known = {0};
  for (int32_t k = 0; k < program->input_count; k++)
    for (const tw_json *dim = program->input_shapes[k]->first; dim; dim = dim->next)
      if (!learn_names(dim, &known, arena)) return tw_no_memory(error);
  for (int32_t k = 0; k < program->dim_count; k++) {
    tw_json name = {.kind = TW_TEXT, .text = program->dims[k]};
    if (!tw_dim_is_known(&name, &known))
      return tw_fail(error, "its manifest is wrong: no input tells the dimension %s", name.text);
  }
  for (int32_t k = 0; k < program->direct_count; k++)
    for (const tw_json *dim = program->output_shapes[program->direct[k]]->first; dim; dim = dim->next)
      if (!tw_dim_is_known(dim, &known))
        return tw_fail(error, "its manifest is wrong: no input tells a dimension of output %s",
                       program->outputs[program->direct[k]].name);
  return true;
}

/* Messages have places for up to four numbers in order, {}; braces of their own are doubled. */
static bool is_message(const char *text) {
  int places = 0;
  for (; *text; text++) {
    if (*text == '{' && text[1] == '}' && ++places <= 4)
      text++;
    else if ((*text == '{' || *text == '}') && text[1] == *text)
      text++;
    else if (*text == '{' || *text == '}')
      return false;
  }
  return true;
}

bool tw_signature_read(tw_program *program, tw_arena *arena, const tw_json *model,
                       tw_error *error) {
  if (!read_tensors(&program->inputs, &program->input_shapes, &program->input_count, arena, model,
                    "inputs", error) ||
      !read_tensors(&program->outputs, &program->output_shapes, &program->output_count, arena,
                    model, "outputs", error))
    return false;
  program->dims = texts_of(arena, model, "dims", &program->dim_count, error);
  if (!program->dims || !read_places(program, arena, model, error)) return false;
  program->messages = texts_of(arena, model, "messages", &program->message_count, error);
  if (!program->messages) return false;
  program->origins = texts_of(arena, model, "origins", &program->origin_count, error);
  if (!program->origins) return false;
  for (int32_t k = 0; k < program->message_count; k++)
    if (!is_message(program->messages[k])) return tw_wrong(error, "a message");
  return check_dims(program, arena, error);
}
