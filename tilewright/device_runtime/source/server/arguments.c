/* Arguments of kernels: arrays and numbers, held against what a kernel takes. */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

static bool refuse(const tw_kernel *kernel, const tw_json *param, const char *why,
                   tw_error *error) {
  return tw_fail(error, "%s: argument %s %s", kernel->model->program.name, part(param, NAME)->text,
                 why);
}

int64_t tw_array_number(const tw_calls *calls, const tw_json *argument) {
  int64_t number = argument->kind == TW_OBJECT ? natural(argument, "array") : -1;
  return number >= 0 && (uint64_t)number < calls->array_count ? number : -1;
}

/* A number, as its bits lie in a word; `whole` is what dimensions see of it. */
static bool number_of(const tw_json *argument, const char *type, uint64_t *word, int64_t *whole) {
  const tw_json *given = argument->kind == TW_OBJECT ? tw_json_find(argument, "number") : NULL;
  bool is_whole = given && (given->kind == TW_INTEGER || given->kind == TW_BOOL);
  bool is_float = given && given->kind == TW_TEXT;
  double real = is_float ? strtod(given->text, NULL) : is_whole ? (double)given->integer : 0;
  float narrow = (float)real;
  *word = 0;
  *whole = is_whole ? given->integer : 0;
  if (!is_whole && !is_float) return false;
  if (!strcmp(type, "float64")) return memcpy(word, &real, sizeof real), true;
  if (!strcmp(type, "float32")) return memcpy(word, &narrow, sizeof narrow), true;
  size_t bits = 8 * tw_type_size(type);
  bool is_unsigned = *type == 'u' || *type == 'b', is_integer = is_unsigned || *type == 'i';
  if (!is_whole || !is_integer || (is_unsigned && *whole < 0)) return false;
  int64_t most = *type == 'b' ? 1 : bits - !is_unsigned > 62 ? INT64_MAX
                                  : ((int64_t)1 << (bits - !is_unsigned)) - 1;
  if (*whole > most || *whole < -most - 1) return false;
  memcpy(word, whole, tw_type_size(type));
  return true;
}

static bool check_array(const tw_kernel *kernel, const tw_json *param, const tw_array *array,
                        tw_error *error) {
  const tw_json *shape = part(param, SHAPE);
  if (strcmp(array->type, part(param, TYPE)->text) || (size_t)array->rank != shape->count)
    return refuse(kernel, param, "is of another type or rank", error);
  if ((uintptr_t)array->data % (uint64_t)part(param, ALIGNMENT)->integer)
    return refuse(kernel, param, "asks for more alignment than arrays have here", error);
  return true;
}

static bool check_shape(const tw_kernel *kernel, const tw_json *param, const tw_array *array,
                        const tw_sizes *sizes, tw_error *error) {
  int axis = 0;
  int64_t value, step = 1;
  for (const tw_json *dim = part(param, SHAPE)->first; dim; dim = dim->next, axis++)
    if (!tw_dim_value(dim, sizes, &value) || value != array->shape[axis])
      return refuse(kernel, param, "is of another shape", error);
  /* Arrays come without gaps. */
  const tw_json *strides = part(param, STRIDES);
  for (axis = array->rank - 1; strides->kind == TW_LIST && axis >= 0; axis--) {
    bool is_known = tw_dim_value(part(strides, axis), sizes, &value);
    if (array->shape[axis] > 1 && (!is_known || value != step))
      return refuse(kernel, param, "has gaps between its elements", error);
    step *= array->shape[axis];
  }
  return true;
}

/* The code relies on its arrays being apart. */
static bool are_apart(const tw_kernel *kernel, const tw_calls *calls, const tw_json *arguments,
                      tw_error *error) {
  const tw_json *a = arguments->first;
  for (const tw_json *p = kernel->params->first; p; p = p->next, a = a->next) {
    const tw_json *b = a->next;
    for (const tw_json *q = p->next; q; q = q->next, b = b->next)
      if (is_array(p) && is_array(q) && (is_written(p) || is_written(q)) &&
          tw_array_number(calls, a) == tw_array_number(calls, b))
        return refuse(kernel, p, "shares memory with another one, and one of them is written to",
                      error);
  }
  return true;
}

static bool bind_arguments(tw_call *call, const tw_kernel *kernel, const tw_calls *calls,
                           const tw_json *arguments, tw_sizes *sizes, tw_arena *arena,
                           tw_error *error) {
  uint64_t *word = call->words;
  const tw_json *argument = arguments->first;
  for (const tw_json *param = kernel->params->first; param; param = param->next) {
    int64_t number = tw_array_number(calls, argument), whole = 0, axis = 0;
    if (is_array(param) ? number < 0 : !number_of(argument, part(param, TYPE)->text, word, &whole))
      return refuse(kernel, param, "is not what it takes", error);
    if (is_array(param)) {
      const tw_array *array = &calls->arrays[number];
      if (!check_array(kernel, param, array, error)) return false;
      *word = (uintptr_t)array->data;
      for (const tw_json *dim = part(param, SHAPE)->first; dim; dim = dim->next)
        if (!tw_dim_learn(dim, array->shape[axis++], sizes, arena)) return tw_no_memory(error);
    }
    word++;
    argument = argument->next;
  }
  return true;
}

/* Numbers have a say in dimensions where no array has. */
static bool check_arguments(uint64_t *word, const tw_kernel *kernel, const tw_calls *calls,
                            const tw_json *arguments, tw_sizes *sizes, tw_arena *arena,
                            tw_error *error) {
  const tw_json *argument = arguments->first;
  for (const tw_json *p = kernel->params->first; p; p = p->next, argument = argument->next) {
    uint64_t bits;
    int64_t whole = 0;
    if (is_array(p) || !number_of(argument, part(p, TYPE)->text, &bits, &whole)) continue;
    if (!tw_dim_learn(part(p, NAME), whole, sizes, arena)) return tw_no_memory(error);
  }
  argument = arguments->first;
  for (const tw_json *p = kernel->params->first; p; p = p->next, argument = argument->next) {
    if (!is_array(p)) continue;
    const tw_array *array = &calls->arrays[tw_array_number(calls, argument)];
    if (!check_shape(kernel, p, array, sizes, error)) return false;
  }
  for (const tw_json *dim = kernel->dims->first; dim; dim = dim->next, word++) {
    int64_t value;
    if (!tw_dim_value(dim, sizes, &value))
      return tw_fail(error, "no argument of %s determines the dimension %s",
                     kernel->model->program.name, dim->text);
    *word = (uint64_t)value;
  }
  return are_apart(kernel, calls, arguments, error);
}

bool tw_kernel_bind(tw_call *call, const tw_kernel *kernel, const tw_calls *calls,
                    const tw_json *arguments, tw_error *error) {
  size_t count = kernel->params->count, dims = kernel->dims->count;
  memset(call, 0, sizeof *call);
  call->model = kernel->model;
  if (arguments->count != count)
    return tw_fail(error, "%s takes %zu arguments, not %zu", kernel->model->program.name, count,
                   arguments->count);
  call->words = calloc(count + dims + 3, sizeof *call->words);
  if (!call->words) return tw_no_memory(error);
  tw_arena arena = {0};
  tw_sizes sizes = {0};
  bool is_bound =
      bind_arguments(call, kernel, calls, arguments, &sizes, &arena, error) &&
      check_arguments(call->words + count, kernel, calls, arguments, &sizes, &arena, error) &&
      tw_call_take_workspace(call, error);
  tw_give_back(&arena);
  uint64_t *env = call->words + count + dims;
  env[0] = (uintptr_t)kernel->model->pool;
  env[1] = (uintptr_t)call->workspace;
  env[2] = (uintptr_t)call->failure;
  return is_bound;
}
